package catalogmigrate;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileSystem;
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
      FileSystem fs = path.getFileSystem(conf);
      return new CheckpointFile(path, new ObjectPut(fs, path, overwriteIfPossible));
    } catch (IOException error) {
      throw ConditionalPutCheckpointFileManager.<RuntimeException>unchecked(error);
    }
  }

  /** Scala's method declares no exception, and its callers wait for these. */
  @SuppressWarnings("unchecked")
  private static <E extends Throwable> E unchecked(Throwable error) throws E {
    throw (E) error;
  }

  private static final class CheckpointFile extends CancellableFSDataOutputStream {
    private final Path path;
    private final ObjectPut put;

    CheckpointFile(Path path, ObjectPut put) {
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
      } catch (ObjectPut.Taken taken) {
        // by this Spark knows that another driver has the batch
        throw (IOException) new FileAlreadyExistsException(path.toString()).initCause(taken);
      }
    }
  }
}
