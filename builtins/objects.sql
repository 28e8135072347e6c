CREATE VIEW catalog_migrate.objects (
  item_id STRING COMMENT 'for life, through migration and rename',
  global_id STRING COMMENT 'of this shape; its columns never change',
  `schema` STRING, kind STRING, name STRING,
  owner STRING COMMENT 'release, system or user',
  shard STRING COMMENT 'directory of its rows below the warehouse, tables only',
  contents STRING COMMENT 'retained or derived, tables only',
  sql STRING COMMENT 'query of a view or body of a function',
  comment STRING,
  quarantined STRING COMMENT 'why it is left out, else NULL'
) COMMENT 'every object in force'
AS SELECT
  key AS item_id,
  get_json_object(value, '$.global_id') AS global_id,
  get_json_object(value, '$.definition.schema') AS `schema`,
  get_json_object(value, '$.definition.kind') AS kind,
  get_json_object(value, '$.definition.name') AS name,
  get_json_object(value, '$.owner') AS owner,
  get_json_object(value, '$.shard') AS shard,
  CASE WHEN get_json_object(value, '$.definition.kind') = 'table'
       THEN coalesce(get_json_object(value, '$.definition.contents'), 'retained') END AS contents,
  coalesce(get_json_object(value, '$.definition.sql'), get_json_object(value, '$.definition.body')) AS sql,
  get_json_object(value, '$.definition.comment') AS comment,
  get_json_object(value, '$.quarantined') AS quarantined
FROM catalog_migrate.records
WHERE kind = 'item';

CREATE VIEW catalog_migrate.columns (
  item_id STRING,
  position INT COMMENT 'from 1',
  name STRING, type STRING, nullable BOOLEAN, comment STRING
) COMMENT 'every column of every object in force'
AS SELECT
  item_id,
  CAST(place + 1 AS INT) AS position,
  one.name AS name,
  one.type AS type,
  coalesce(one.nullable, true) AS nullable,
  one.comment AS comment
FROM (
  SELECT
    key AS item_id,
    posexplode(from_json(
      get_json_object(value, '$.definition.columns'),
      'ARRAY<STRUCT<name: STRING, type: STRING, nullable: BOOLEAN, comment: STRING>>'
    )) AS (place, one)
  FROM catalog_migrate.records
  WHERE kind = 'item'
);

CREATE VIEW catalog_migrate.dependencies (
  item_id STRING COMMENT 'the object that reads',
  uses_item_id STRING COMMENT 'the object that it reads'
) COMMENT 'which object reads which'
AS SELECT key AS item_id, explode(from_json(get_json_object(value, '$.uses'), 'ARRAY<STRING>')) AS uses_item_id
FROM catalog_migrate.records
WHERE kind = 'item';

CREATE VIEW catalog_migrate.mappings (
  `schema` STRING, kind STRING, name STRING, owner STRING, item_id STRING, global_id STRING,
  fingerprint STRING COMMENT 'of names, types and nullability of the columns',
  definition_hash STRING, storage_hash STRING
) COMMENT 'which id stands under which name'
AS SELECT
  get_json_object(value, '$.schema') AS `schema`,
  get_json_object(value, '$.kind') AS kind,
  get_json_object(value, '$.name') AS name,
  get_json_object(value, '$.owner') AS owner,
  get_json_object(value, '$.item_id') AS item_id,
  get_json_object(value, '$.global_id') AS global_id,
  get_json_object(value, '$.fingerprint') AS fingerprint,
  get_json_object(value, '$.definition_hash') AS definition_hash,
  get_json_object(value, '$.storage_hash') AS storage_hash
FROM catalog_migrate.records
WHERE kind = 'mapping';

CREATE VIEW catalog_migrate.user_objects (
  `schema` STRING, kind STRING COMMENT 'view or function', name STRING,
  reads ARRAY<STRING> COMMENT 'what it reads, of the software and of users',
  state STRING COMMENT 'bound, broken or unknown, when it was looked at last',
  condition STRING COMMENT 'error class of Spark', reason STRING,
  release STRING COMMENT 'in force when it came to this state', since TIMESTAMP,
  repaired BOOLEAN COMMENT 'whether its text is one that a repair put there'
) COMMENT 'views and functions of users that read what the software ships, since the newest change'
AS SELECT
  get_json_object(value, '$.schema') AS `schema`,
  get_json_object(value, '$.kind') AS kind,
  get_json_object(value, '$.name') AS name,
  from_json(get_json_object(value, '$.reads'), 'ARRAY<STRING>') AS reads,
  coalesce(get_json_object(value, '$.state'), 'bound') AS state,
  get_json_object(value, '$.condition') AS condition,
  get_json_object(value, '$.reason') AS reason,
  get_json_object(value, '$.release') AS release,
  CAST(get_json_object(value, '$.since') AS TIMESTAMP) AS since,
  get_json_object(value, '$.original') IS NOT NULL AS repaired
FROM catalog_migrate.records
WHERE kind = 'user_object';
