package catalogmigrate;

import io.delta.storage.HadoopFileSystemLogStore;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Delta's commits on S3 by conditional PUT, as delta-rs makes them (needs hadoop-aws 3.4.2).
 *
 * <p>Delta's own S3SingleDriverLogStore looks whether the version is there and then puts it: what
 * another process has put in between is written over without an error.
 *
 * <p>Set as {@code spark.delta.logStore.s3a.impl} and {@code spark.delta.logStore.s3.impl}.
 */
public class ConditionalPutLogStore extends HadoopFileSystemLogStore {
  public ConditionalPutLogStore(Configuration conf) {
    super(conf);
  }

  @Override
  public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration conf)
      throws IOException {
    FileSystem fs = path.getFileSystem(conf);
    if (overwrite) { // a checkpoint's pointer and the like; commits never are
      try (OutputStream out = fs.create(path, true)) {
        writeLines(out, actions);
      }
      return;
    }
    ConditionalPut out = new ConditionalPut(fs, path);
    try {
      writeLines(out, actions);
      out.close();
    } catch (ConditionalPut.Taken taken) {
      // by this Delta knows that it lost the version, and tries the next one
      throw (IOException) new FileAlreadyExistsException(path.toString()).initCause(taken);
    } finally {
      out.abort(); // where the actions themselves failed: half a commit is none
    }
  }

  private static void writeLines(OutputStream out, Iterator<String> lines) throws IOException {
    while (lines.hasNext()) {
      out.write((lines.next() + "\n").getBytes(StandardCharsets.UTF_8));
    }
  }

  /** An object is there whole or not at all. */
  @Override
  public Boolean isPartialWriteVisible(Path path, Configuration conf) {
    return false;
  }
}
