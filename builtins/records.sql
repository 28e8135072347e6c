-- What is in force: the durable log is a sum of rows, so are all views below.
CREATE VIEW catalog_migrate.records (
  kind STRING COMMENT 'collection',
  key STRING COMMENT 'key within the collection',
  value STRING COMMENT 'the record as JSON'
) COMMENT 'every record of the catalog that is in force'
AS SELECT kind, key, value
FROM delta.${catalog_log}
GROUP BY kind, key, value
HAVING sum(diff) > 0;
