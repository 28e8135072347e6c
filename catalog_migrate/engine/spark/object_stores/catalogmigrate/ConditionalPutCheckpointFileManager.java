package catalogmigrate;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream;
import org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager;

/**
 * Checkpoints of streaming queries whose files on S3 are one conditional PUT each.
 *
 * <p>Spark's own managers look, write and then rename or put: of two drivers on one checkpoint both
 * take themselves for the one that wrote a batch. Here the second one's file is refused, and Spark
 * ends its query.
 *
 * <p>Set as {@code spark.sql.streaming.checkpointFileManagerClass}, which holds for all schemes:
 * everywhere but on s3 and s3a this is Spark's own manager.
 */
public class ConditionalPutCheckpointFileManager extends FileContextBasedCheckpointFileManager {
  private final Configuration conf;
  private final boolean conditional;

  public ConditionalPutCheckpointFileManager(Path path, Configuration conf) throws IOException {
    super(path, conf);
    this.conf = conf;
    String scheme = path.getFileSystem(conf).getUri().getScheme();
    this.conditional = "s3a".equals(scheme) || "s3".equals(scheme);
  }

  @Override
  public CancellableFSDataOutputStream createAtomic(Path path, boolean overwriteIfPossible) {
    if (!conditional) {
      return super.createAtomic(path, overwriteIfPossible);
    }
    try {
      return overwriteIfPossible ? new Overwriting(path, conf) : new Exclusive(path, conf);
    } catch (IOException error) {
      throw ConditionalPutCheckpointFileManager.<RuntimeException>unchecked(error);
    }
  }

  /** Scala's method declares no exception, and its callers wait for these. */
  @SuppressWarnings("unchecked")
  private static <E extends Throwable> E unchecked(Throwable error) throws E {
    throw (E) error;
  }

  /** A file that must not be there. */
  private static final class Exclusive extends CancellableFSDataOutputStream {
    private final ConditionalPut put;
    private final Path path;

    Exclusive(Path path, Configuration conf) throws IOException {
      this(path, new ConditionalPut(path.getFileSystem(conf), path));
    }

    private Exclusive(Path path, ConditionalPut put) {
      super(put);
      this.path = path;
      this.put = put;
    }

    @Override
    public void cancel() {
      put.abort();
    }

    @Override
    public void close() throws IOException {
      try {
        put.close();
      } catch (ConditionalPut.Taken taken) {
        // by this Spark knows that another driver has the batch
        throw (IOException) new FileAlreadyExistsException(path.toString()).initCause(taken);
      }
    }
  }

  /** A file that may be there: the object is whole at each moment, the old one or the new one. */
  private static final class Overwriting extends CancellableFSDataOutputStream {
    private final FSDataOutputStream out;
    private boolean ended;

    Overwriting(Path path, Configuration conf) throws IOException {
      this(path.getFileSystem(conf).create(path, true));
    }

    private Overwriting(FSDataOutputStream out) {
      super(out);
      this.out = out;
    }

    @Override
    public synchronized void cancel() {
      if (!ended) {
        ended = true;
        out.abort();
      }
    }

    @Override
    public synchronized void close() throws IOException {
      if (!ended) {
        ended = true;
        out.close();
      }
    }
  }
}
