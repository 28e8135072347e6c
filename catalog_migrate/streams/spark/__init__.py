"""The queries of sources and sinks on Spark Structured Streaming; everything else is above."""
