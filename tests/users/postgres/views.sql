-- Forty views of users over PostgreSQL 15's catalog. What becomes of each with 16 and 18 is Spark's to
-- say: no expectation is written here.

-- Joins, windows, grouping: read what changes, and nothing of it.
CREATE VIEW team.relations AS
  SELECT n.nspname, c.relname, c.relkind, c.reltuples
  FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace;
CREATE VIEW team.widest COMMENT 'the widest column of each relation' AS
  SELECT attrelid, attname, attlen FROM (
    SELECT attrelid, attname, attlen,
           row_number() OVER (PARTITION BY attrelid ORDER BY attlen DESC, attnum) AS place
    FROM pg_catalog.pg_attribute
  ) WHERE place = 1;
CREATE VIEW team.kinds AS
  SELECT relkind, count(*) AS relations, sum(relpages) AS pages
  FROM pg_catalog.pg_class GROUP BY relkind HAVING count(*) > 1;
CREATE VIEW team.above_relations (`schema`, `relation`, tuples) AS
  SELECT nspname, relname, reltuples FROM team.relations WHERE relkind = 'r';
CREATE VIEW team.twice_above AS SELECT `schema`, count(*) AS tables FROM team.above_relations GROUP BY 1;

-- Common table expressions, one that has the name of a relation.
CREATE VIEW team.chained AS
  WITH pg_class AS (SELECT attrelid AS oid, count(*) AS columns FROM pg_catalog.pg_attribute GROUP BY 1),
       named AS (SELECT c.relname, p.columns FROM pg_catalog.pg_class AS c JOIN pg_class AS p USING (oid))
  SELECT relname, columns FROM named WHERE columns > 3;
CREATE VIEW team.lost_in_cte AS
  WITH offsets AS (SELECT attrelid, attcacheoff AS place FROM pg_catalog.pg_attribute)
  SELECT attrelid, max(place) AS place FROM offsets GROUP BY attrelid;

-- SELECT *, t.* and EXCEPT in every schema mode, over a table that retypes, moves and loses columns.
CREATE VIEW team.all_default AS SELECT * FROM pg_catalog.pg_attribute;
CREATE VIEW team.all_evolving WITH SCHEMA EVOLUTION AS SELECT * FROM pg_catalog.pg_attribute;
CREATE VIEW team.all_typed WITH SCHEMA TYPE EVOLUTION AS SELECT a.* FROM pg_catalog.pg_attribute AS a;
CREATE VIEW team.all_bound WITH SCHEMA BINDING AS SELECT * FROM pg_catalog.pg_attribute;
CREATE VIEW team.all_but AS SELECT * EXCEPT (attcacheoff) FROM pg_catalog.pg_attribute;
CREATE VIEW team.some_default AS SELECT attrelid, attname, attndims FROM pg_catalog.pg_attribute;
CREATE VIEW team.some_compensated WITH SCHEMA COMPENSATION AS
  SELECT attname, attndims + 1 AS next, attinhcount FROM pg_catalog.pg_attribute;
CREATE VIEW team.some_typed WITH SCHEMA TYPE EVOLUTION AS
  SELECT attname, attndims, attstattarget FROM pg_catalog.pg_attribute;
CREATE VIEW team.some_bound WITH SCHEMA BINDING AS
  SELECT conname, coninhcount FROM pg_catalog.pg_constraint;
CREATE VIEW team.evolving_above WITH SCHEMA EVOLUTION AS SELECT * FROM team.all_evolving;
CREATE VIEW team.statistics WITH SCHEMA TYPE EVOLUTION AS
  SELECT stxname, stxstattarget, coalesce(stxstattarget, -1) AS target FROM pg_catalog.pg_statistic_ext;

-- A boolean that becomes a text: hidden, refused, and what no filter takes.
CREATE VIEW team.subscriptions AS SELECT subname, substream FROM pg_catalog.pg_subscription;
CREATE VIEW team.subscriptions_bound WITH SCHEMA BINDING AS
  SELECT subname, substream FROM pg_catalog.pg_subscription;
CREATE VIEW team.streaming AS SELECT subname FROM pg_catalog.pg_subscription WHERE substream;

-- Names that a new column takes: NATURAL JOIN, an outer reference, an unqualified name.
CREATE VIEW team.marked AS SELECT relname, mark FROM pg_catalog.pg_class NATURAL JOIN team.marks;
CREATE VIEW team.members AS
  SELECT rolname, roleid, member FROM pg_catalog.pg_authid NATURAL JOIN pg_catalog.pg_auth_members;
CREATE VIEW team.frozen AS
  SELECT m.mark FROM team.marks AS m
  WHERE EXISTS (SELECT 1 FROM pg_catalog.pg_class AS c WHERE c.relname = m.relname AND relallfrozen = 7);
CREATE VIEW team.granted AS
  SELECT oid, rolname, admin_option
  FROM pg_catalog.pg_authid JOIN pg_catalog.pg_auth_members ON roleid = pg_authid.oid;
CREATE VIEW team.enforced AS
  SELECT c.conname, conenforced FROM pg_catalog.pg_constraint AS c LEFT JOIN team.flags AS f
  ON f.conname = c.conname;
CREATE VIEW team.digests AS SELECT datname, hash(d.*) AS digest FROM pg_catalog.pg_database AS d;
CREATE VIEW team.as_json AS SELECT datname, to_json(struct(d.*)) AS row FROM pg_catalog.pg_database AS d;
CREATE VIEW team.doubled AS
  SELECT * FROM pg_catalog.pg_stat_xact_all_tables UNION ALL
  SELECT 0, 'none', 'none', 0, 0, 0, 0, 0, 0, 0, 0;

-- Lambdas, generators, lateral subqueries, pivots.
CREATE VIEW team.grants AS
  SELECT relname, transform(relacl, entry -> upper(entry)) AS entries,
         aggregate(relacl, 0, (total, entry) -> total + length(entry)) AS size
  FROM pg_catalog.pg_class WHERE exists(relacl, entry -> entry LIKE '%=r/%');
CREATE VIEW team.keys AS
  SELECT conname, place, attribute FROM pg_catalog.pg_constraint
  LATERAL VIEW posexplode(conkey) AS place, attribute;
CREATE VIEW team.largest AS
  SELECT n.nspname, l.relname FROM pg_catalog.pg_namespace AS n,
  LATERAL (SELECT relname FROM pg_catalog.pg_class AS c WHERE c.relnamespace = n.oid
           ORDER BY relpages DESC, relname LIMIT 1) AS l;
CREATE VIEW team.crossed AS
  SELECT * FROM (SELECT relpersistence, relkind, relpages FROM pg_catalog.pg_class)
  PIVOT (sum(relpages) FOR relkind IN ('r' AS tables, 'i' AS indexes));

-- Columns that 18 renames.
CREATE VIEW team.locales AS
  SELECT collname, colliculocale FROM pg_catalog.pg_collation WHERE collprovider = 'i';
CREATE VIEW team.databases (name, locale) WITH SCHEMA BINDING AS
  SELECT d.datname, d.daticulocale FROM pg_catalog.pg_database AS d ORDER BY d.daticulocale;

-- Names that only Spark can tell, names that look temporary, names like ours, odd names.
CREATE VIEW team.spelt AS SELECT conname, coninhcount FROM IDENTIFIER('pg_catalog.pg_' || 'constraint');
CREATE VIEW team.unparsable AS SELECT collname, colliculocale FROM IDENTIFIER(lower('PG_CATALOG.PG_COLLATION'));
CREATE VIEW team.catalog_migrate_bind_1 AS SELECT wal_records, wal_sync FROM pg_catalog.pg_stat_wal;
CREATE VIEW team.pg_class AS SELECT name, parent, level FROM pg_catalog.pg_backend_memory_contexts;
CREATE VIEW `2nd`.`select` (`a b`, `ü``; --`) AS
  SELECT name, level FROM team.pg_class WHERE parent IS NOT NULL;

-- Through functions.
CREATE VIEW team.called AS
  SELECT team.shorten(collname) AS short, team.locale_of(collname, 'C') AS locale FROM pg_catalog.pg_collation;
CREATE VIEW `2nd`.tables_of AS
  SELECT c.relname, t.name, t.dimensions FROM pg_catalog.pg_class AS c, LATERAL team.columns_of(c.oid) AS t;
