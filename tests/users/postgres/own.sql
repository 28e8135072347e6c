-- What users have of their own beside PostgreSQL's catalog: two tables, and functions.
CREATE SCHEMA team;
CREATE SCHEMA `2nd`;
CREATE TABLE team.marks (relname STRING, relallfrozen INT, mark STRING) USING parquet;
INSERT INTO team.marks VALUES ('pg_class', 7, 'a'), ('pg_type', 0, 'b'), ('pg_proc', 0, 'c');
CREATE TABLE team.flags (conname STRING, conenforced BOOLEAN) USING delta;
INSERT INTO team.flags VALUES ('pg_class_oid_index', true), ('pg_type_oid_index', false);
CREATE FUNCTION team.shorten(name STRING) RETURNS STRING
  COMMENT 'reads nothing of ours'
  RETURN upper(left(name, 6));
CREATE FUNCTION team.pages_of(relation BIGINT) RETURNS INT
  RETURN (SELECT max(relpages) FROM pg_catalog.pg_class WHERE oid = relation);
CREATE FUNCTION team.locale_of(collation_name STRING, fallback STRING) RETURNS STRING
  COMMENT 'the locale of a collation'
  RETURN coalesce((SELECT max(c.colliculocale) FROM pg_catalog.pg_collation AS c
                   WHERE c.collname = collation_name), fallback);
CREATE FUNCTION team.streams(subscription STRING) RETURNS BOOLEAN
  RETURN (SELECT max(substream) FROM pg_catalog.pg_subscription WHERE subname = subscription);
CREATE FUNCTION team.columns_of(relation BIGINT) RETURNS TABLE (name STRING, dimensions INT)
  RETURN SELECT attname, attndims FROM pg_catalog.pg_attribute WHERE attrelid = relation;
CREATE FUNCTION `2nd`.`1st`() RETURNS TABLE (written BIGINT, synced BIGINT)
  RETURN SELECT wal_write, wal_sync FROM pg_catalog.pg_stat_wal;
