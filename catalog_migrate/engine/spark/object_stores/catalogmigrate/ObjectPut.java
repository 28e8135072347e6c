package catalogmigrate;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.UUID;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * An object that is put whole and at once when it is closed, or not at all.
 *
 * <p>Where none may be it is PUT If-None-Match: *. {@link #close} then returns when the object is
 * ours, and throws {@link Taken} when it is another's.
 */
final class ObjectPut extends OutputStream {
  /** Another writer's object lies at the path, where none may be. */
  static final class Taken extends IOException {
    Taken(Path path, IOException refusal) {
      super("another writer has put " + path, refusal);
    }
  }

  private static final String CONDITIONAL = "fs.option.create.conditional.overwrite";
  private static final String WRITER = "catalog-migrate-writer";
  private static final String PUT_HEADER = "fs.s3a.create.header." + WRITER;
  private static final String READ_HEADER = "header." + WRITER;

  private final FileSystem fs;
  private final Path path;
  private final String writer = UUID.randomUUID().toString();
  private final boolean overwrite;
  private final FSDataOutputStream out;
  private boolean ended;

  /** Begins a PUT; the place must be free unless {@code overwrite} is set. */
  ObjectPut(FileSystem fs, Path path, boolean overwrite) throws IOException {
    this.fs = fs;
    this.path = path;
    this.overwrite = overwrite;
    // the look before the PUT is spared: it is the PUT itself that is refused
    FSDataOutputStreamBuilder<?, ?> builder = fs.createFile(path).overwrite(true);
    if (!overwrite) {
      // must: a file system that does not know the option refuses, and nothing is written
      builder.must(CONDITIONAL, true);
      builder.opt(PUT_HEADER, writer);
    }
    this.out = (FSDataOutputStream) builder.build();
  }

  @Override
  public void write(int one) throws IOException {
    out.write(one);
  }

  @Override
  public void write(byte[] bytes, int offset, int length) throws IOException {
    out.write(bytes, offset, length);
  }

  /** Puts nothing; of no effect once it was closed. */
  synchronized void abort() {
    if (!ended) {
      ended = true;
      out.abort();
    }
  }

  @Override
  public synchronized void close() throws IOException {
    if (ended) {
      return;
    }
    ended = true;
    try {
      out.close();
    } catch (IOException refusal) {
      // The client repeats a PUT whose answer was lost, and is then refused by its own object. The
      // bytes tell nothing, two drivers write the same ones: each PUT carries a mark of its own.
      Boolean ours = isOurs(refusal);
      if (ours == null) {
        throw refusal;
      }
      if (!ours) {
        throw new Taken(path, refusal);
      }
    }
  }

  /** Whether the object at the path carries our mark; null where none is, or nobody can tell. */
  private Boolean isOurs(IOException refusal) {
    if (overwrite) {
      return null;
    }
    try {
      byte[] mark = fs.getXAttrs(path).get(READ_HEADER);
      return mark != null && writer.equals(new String(mark, StandardCharsets.UTF_8));
    } catch (FileNotFoundException none) {
      return null;
    } catch (IOException unanswered) {
      refusal.addSuppressed(unanswered);
      return null;
    }
  }
}
