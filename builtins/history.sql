CREATE VIEW catalog_migrate.releases (
  owner STRING COMMENT 'release: the software, system: these views',
  number INT COMMENT 'in the order in which they came into force',
  name STRING, manifest_hash STRING,
  serial BIGINT COMMENT 'of the catalog when it came into force',
  in_force BOOLEAN
) COMMENT 'every release that was ever in force'
AS SELECT
  get_json_object(value, '$.owner') AS owner,
  CAST(substring_index(key, '/', -1) AS INT) AS number,
  get_json_object(value, '$.name') AS name,
  get_json_object(value, '$.manifest_hash') AS manifest_hash,
  CAST(get_json_object(value, '$.serial') AS BIGINT) AS serial,
  coalesce(CAST(get_json_object(value, '$.in_force') AS BOOLEAN), false) AS in_force
FROM catalog_migrate.records
WHERE kind = 'release';

CREATE VIEW catalog_migrate.shards (
  path STRING COMMENT 'below the warehouse',
  item_id STRING, global_id STRING,
  state STRING COMMENT 'building, live, retired or gone',
  source STRING COMMENT 'the shard that its rows came from',
  source_version BIGINT, version BIGINT, retired_at TIMESTAMP, unfilled BOOLEAN
) COMMENT 'every directory of rows that was ever handed out'
AS SELECT
  key AS path,
  get_json_object(value, '$.item_id') AS item_id,
  get_json_object(value, '$.global_id') AS global_id,
  get_json_object(value, '$.state') AS state,
  get_json_object(value, '$.source') AS source,
  CAST(get_json_object(value, '$.source_version') AS BIGINT) AS source_version,
  CAST(get_json_object(value, '$.version') AS BIGINT) AS version,
  timestamp_seconds(CAST(get_json_object(value, '$.retired_at') AS BIGINT)) AS retired_at,
  coalesce(CAST(get_json_object(value, '$.unfilled') AS BOOLEAN), false) AS unfilled
FROM catalog_migrate.records
WHERE kind = 'shard';

CREATE VIEW catalog_migrate.tombstones (
  serial BIGINT, position INT, `schema` STRING, kind STRING, name STRING,
  item_id STRING, global_id STRING,
  location STRING COMMENT 'what exactly is to go, tables only'
) COMMENT 'names still to be dropped'
AS SELECT
  CAST(get_json_object(value, '$.serial') AS BIGINT) AS serial,
  CAST(get_json_object(value, '$.position') AS INT) AS position,
  get_json_object(value, '$.schema') AS `schema`,
  get_json_object(value, '$.kind') AS kind,
  get_json_object(value, '$.name') AS name,
  get_json_object(value, '$.item_id') AS item_id,
  get_json_object(value, '$.global_id') AS global_id,
  get_json_object(value, '$.location') AS location
FROM catalog_migrate.records
WHERE kind = 'tombstone';

CREATE VIEW catalog_migrate.audit (
  version BIGINT COMMENT 'of the log',
  commit_id STRING,
  at TIMESTAMP COMMENT 'by the clock of the process that committed',
  verb STRING, who STRING COMMENT 'user of the operating system', host STRING,
  serial_before BIGINT, serial_after BIGINT,
  release STRING COMMENT 'in force after it',
  epoch BIGINT COMMENT 'of the lease that it was made under',
  reason STRING COMMENT 'what a person gave for it'
) COMMENT 'every commit of the catalog; the newest follow with the next start'
AS SELECT version, commit_id, at, verb, who, host, serial_before, serial_after, release, epoch, reason
FROM delta.${catalog_audit};

CREATE VIEW catalog_migrate.operations_log (
  version BIGINT COMMENT 'of the log: the commit that followed',
  position BIGINT COMMENT 'among the operations before that commit, from 1',
  started TIMESTAMP COMMENT 'by the clock of the process that executed it',
  seconds DOUBLE,
  op STRING COMMENT 'build, copy, populate, seal, evolve, drop, redefine, update, create; of queries validate, stop, settle, restore, edit, start, probe',
  kind STRING, name STRING, item_id STRING,
  phase STRING COMMENT 'prepare: before the commit of a migration; in place, names: after it; streams: of running queries',
  outcome STRING COMMENT 'done, or why not'
) COMMENT 'every operation that was executed; the newest follow with the next start'
AS SELECT version, position, started, seconds, op, kind, name, id AS item_id, phase, outcome
FROM delta.${operations_log};
