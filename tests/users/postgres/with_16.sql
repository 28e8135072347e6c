-- What users make once release 16 is there: it takes columns that 15 did not have.
CREATE VIEW team.io WITH SCHEMA BINDING AS SELECT backend_type, op_bytes FROM pg_catalog.pg_stat_io;
CREATE VIEW team.narrow WITH SCHEMA BINDING AS SELECT attname, attndims FROM pg_catalog.pg_attribute;
