package catalogmigrate;

import io.delta.storage.HadoopFileSystemLogStore;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
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
    ObjectPut out = new ObjectPut(path.getFileSystem(conf), path, overwrite);
    try {
      while (actions.hasNext()) {
        out.write((actions.next() + "\n").getBytes(StandardCharsets.UTF_8));
      }
      out.close();
    } catch (ObjectPut.Taken taken) {
      // by this Delta knows that it lost the version, and tries the next one
      throw (IOException) new FileAlreadyExistsException(path.toString()).initCause(taken);
    } finally {
      out.abort(); // where the actions themselves failed: half a commit is none
    }
  }

  /** An object is there whole or not at all. */
  @Override
  public Boolean isPartialWriteVisible(Path path, Configuration conf) {
    return false;
  }
}
