-- Connections, sources and sinks; what SHOW prints, for programs. Only names of secrets are here.
CREATE VIEW catalog_migrate.connections (
  item_id STRING, `schema` STRING, name STRING,
  type STRING COMMENT 'KAFKA, POSTGRES or FILES',
  uses STRING COMMENT 'item id of the connection that it inherits from',
  options STRING COMMENT 'JSON; a secret is shown as its name',
  comment STRING
) COMMENT 'every connection'
AS SELECT
  key AS item_id,
  get_json_object(value, '$.definition.schema') AS `schema`,
  get_json_object(value, '$.definition.name') AS name,
  get_json_object(value, '$.definition.external.connector') AS type,
  get_json_object(value, '$.links.connection') AS uses,
  get_json_object(value, '$.definition.external.options') AS options,
  get_json_object(value, '$.definition.comment') AS comment
FROM catalog_migrate.records
WHERE kind = 'item' AND get_json_object(value, '$.definition.kind') = 'connection';

CREATE VIEW catalog_migrate.clusters (
  item_id STRING, `schema` STRING, name STRING,
  log_item_id STRING COMMENT 'item id of its log',
  runtime STRING COMMENT 'host and process that hold its lease, NULL for nobody',
  since STRING,
  unsafe_ops BOOLEAN COMMENT 'gate that its last runtime was started with, NULL for none ever'
) COMMENT 'where queries run'
AS SELECT
  item.key AS item_id,
  get_json_object(item.value, '$.definition.schema') AS `schema`,
  get_json_object(item.value, '$.definition.name') AS name,
  get_json_object(item.value, '$.links.log') AS log_item_id,
  nullif(get_json_object(lease.value, '$.holder'), '') AS runtime,
  get_json_object(lease.value, '$.since') AS since,
  CASE WHEN gate.key IS NOT NULL
    THEN coalesce(get_json_object(gate.value, '$.unsafe'), 'false') = 'true'
  END AS unsafe_ops
FROM (SELECT key, value FROM catalog_migrate.records WHERE kind = 'item') AS item
LEFT JOIN (SELECT key, value FROM catalog_migrate.records WHERE kind = 'cluster') AS gate
  ON gate.key = item.key
LEFT JOIN (SELECT key, value FROM catalog_migrate.records WHERE kind = 'lease') AS lease
  ON lease.key = concat('cluster/', item.key)
WHERE get_json_object(item.value, '$.definition.kind') = 'cluster';

CREATE VIEW catalog_migrate.holds (
  item_id STRING,
  holder STRING COMMENT 'operator, upstream, or an operation',
  reason STRING, since STRING
) COMMENT 'why queries do not run; one runs when it has none'
AS SELECT
  get_json_object(value, '$.item_id') AS item_id,
  get_json_object(value, '$.holder') AS holder,
  get_json_object(value, '$.reason') AS reason,
  get_json_object(value, '$.since') AS since
FROM catalog_migrate.records
WHERE kind = 'hold';

CREATE VIEW catalog_migrate.operations (
  operation STRING,
  target STRING COMMENT 'item id of what is altered',
  cluster STRING COMMENT 'item id',
  state STRING COMMENT 'validating, trial, confirmed, set_back or failed',
  dependents ARRAY<STRING> COMMENT 'item ids of the queries that it restarts',
  phase STRING COMMENT 'what it is doing',
  reason STRING COMMENT 'why it was set back or failed', since STRING
) COMMENT 'ALTERs under running queries'
AS SELECT
  key AS operation,
  get_json_object(value, '$.target') AS target,
  get_json_object(value, '$.cluster') AS cluster,
  get_json_object(value, '$.state') AS state,
  from_json(get_json_object(value, '$.dependents'), 'ARRAY<STRING>') AS dependents,
  get_json_object(value, '$.detail.phase') AS phase,
  get_json_object(value, '$.detail.reason') AS reason,
  get_json_object(value, '$.detail.since') AS since
FROM catalog_migrate.records
WHERE kind = 'operation' AND get_json_object(value, '$.kind') = 'alter';

CREATE VIEW catalog_migrate.statuses (
  item_id STRING, state STRING, batch BIGINT, rows BIGINT, lag BIGINT, at TIMESTAMP,
  error STRING, run_id STRING, query_id STRING, restarts BIGINT, runtime STRING
) COMMENT 'the newest row of each query in the logs of the clusters'
AS SELECT item_id, state, batch, rows, lag, at, error, run_id, query_id, restarts, runtime
FROM (
  SELECT
    item_id, state, batch, rows, lag, at, error, run_id, query_id, restarts, runtime,
    row_number() OVER (PARTITION BY item_id ORDER BY at DESC) AS newest
  FROM ${cluster_logs}
)
WHERE newest = 1;

CREATE VIEW catalog_migrate.sources (
  item_id STRING, `schema` STRING, name STRING, type STRING,
  connection STRING COMMENT 'item id', cluster STRING COMMENT 'item id', options STRING,
  holds BIGINT COMMENT 'how many; see catalog_migrate.holds',
  state STRING, batch BIGINT, rows BIGINT, lag BIGINT, at TIMESTAMP, error STRING
) COMMENT 'streams into tables, with the newest status of their queries'
AS SELECT
  item.key AS item_id,
  get_json_object(item.value, '$.definition.schema') AS `schema`,
  get_json_object(item.value, '$.definition.name') AS name,
  get_json_object(item.value, '$.definition.external.connector') AS type,
  get_json_object(item.value, '$.links.connection') AS connection,
  get_json_object(item.value, '$.links.cluster') AS cluster,
  get_json_object(item.value, '$.definition.external.options') AS options,
  coalesce(held.holds, 0) AS holds,
  CASE
    WHEN get_json_object(item.value, '$.quarantined') IS NOT NULL THEN 'quarantined'
    WHEN status.state IS NOT NULL THEN status.state
    WHEN held.holds > 0 THEN 'held'
    WHEN cluster.runtime IS NULL THEN 'no runtime'
    ELSE 'starting'
  END AS state,
  status.batch AS batch, status.rows AS rows, status.lag AS lag,
  status.at AS at,
  coalesce(get_json_object(item.value, '$.quarantined'), status.error, earlier.error) AS error
FROM (SELECT key, value FROM catalog_migrate.records WHERE kind = 'item') AS item
LEFT JOIN catalog_migrate.clusters AS cluster
  ON cluster.item_id = get_json_object(item.value, '$.links.cluster')
-- what the runtime that holds the cluster has said since it took it
LEFT JOIN catalog_migrate.statuses AS status
  ON status.item_id = item.key AND status.runtime = cluster.runtime
  AND status.at >= date_trunc('SECOND', CAST(cluster.since AS TIMESTAMP))
LEFT JOIN catalog_migrate.statuses AS earlier
  ON earlier.item_id = item.key AND cluster.runtime IS NULL
LEFT JOIN (SELECT item_id, count(*) AS holds FROM catalog_migrate.holds GROUP BY item_id) AS held
  ON held.item_id = item.key
WHERE get_json_object(item.value, '$.definition.kind') = 'source';

CREATE VIEW catalog_migrate.sinks (
  item_id STRING, `schema` STRING, name STRING, type STRING,
  reads STRING COMMENT 'item id', connection STRING COMMENT 'item id',
  cluster STRING COMMENT 'item id', options STRING,
  holds BIGINT COMMENT 'how many; see catalog_migrate.holds',
  state STRING, batch BIGINT, rows BIGINT, at TIMESTAMP, error STRING
) COMMENT 'tables out to other systems, with the newest status of their queries'
AS SELECT
  item.key AS item_id,
  get_json_object(item.value, '$.definition.schema') AS `schema`,
  get_json_object(item.value, '$.definition.name') AS name,
  get_json_object(item.value, '$.definition.external.connector') AS type,
  get_json_object(item.value, '$.links.reads') AS reads,
  get_json_object(item.value, '$.links.connection') AS connection,
  get_json_object(item.value, '$.links.cluster') AS cluster,
  get_json_object(item.value, '$.definition.external.options') AS options,
  coalesce(held.holds, 0) AS holds,
  CASE
    WHEN get_json_object(item.value, '$.quarantined') IS NOT NULL THEN 'quarantined'
    WHEN status.state IS NOT NULL THEN status.state
    WHEN held.holds > 0 THEN 'held'
    WHEN cluster.runtime IS NULL THEN 'no runtime'
    ELSE 'starting'
  END AS state,
  status.batch AS batch, status.rows AS rows,
  status.at AS at,
  coalesce(get_json_object(item.value, '$.quarantined'), status.error, earlier.error) AS error
FROM (SELECT key, value FROM catalog_migrate.records WHERE kind = 'item') AS item
LEFT JOIN catalog_migrate.clusters AS cluster
  ON cluster.item_id = get_json_object(item.value, '$.links.cluster')
-- what the runtime that holds the cluster has said since it took it
LEFT JOIN catalog_migrate.statuses AS status
  ON status.item_id = item.key AND status.runtime = cluster.runtime
  AND status.at >= date_trunc('SECOND', CAST(cluster.since AS TIMESTAMP))
LEFT JOIN catalog_migrate.statuses AS earlier
  ON earlier.item_id = item.key AND cluster.runtime IS NULL
LEFT JOIN (SELECT item_id, count(*) AS holds FROM catalog_migrate.holds GROUP BY item_id) AS held
  ON held.item_id = item.key
WHERE get_json_object(item.value, '$.definition.kind') = 'sink';

CREATE VIEW catalog_migrate.unsafe_operations (
  operation STRING,
  kind STRING COMMENT 'alter, reset, inject or undo: the widest thing that it does',
  `at` STRING COMMENT 'when it was asked for',
  who STRING, host STRING, reason STRING,
  sources ARRAY<STRING> COMMENT 'names of that time',
  jobs ARRAY<STRING> COMMENT 'everything below them',
  `keys` ARRAY<STRING> COMMENT 'properties that changed, never a value',
  reset BOOLEAN COMMENT 'whether discovered partitions were forgotten',
  injected BIGINT COMMENT 'partitions that were put elsewhere',
  partitions ARRAY<STRING> COMMENT 'these, from where and to where: next records to read',
  doubled BIGINT COMMENT 'records, predicted', skipped BIGINT COMMENT 'records, predicted',
  expired BIGINT COMMENT 'records that were gone already',
  exact BOOLEAN COMMENT 'false: at most that many',
  actual_doubled BIGINT COMMENT 'NULL until the old position is passed', actual_skipped BIGINT,
  restored BIGINT COMMENT 'version of the table that came back by RESTORE, else NULL',
  removed BIGINT COMMENT 'rows that the RESTORE took away',
  brought_back BIGINT COMMENT 'rows that it brought back, which an earlier one had taken away',
  backfill_records BIGINT COMMENT 'skipped records to be read into the table, else 0',
  backfill STRING COMMENT 'how far that is, or what it came to',
  state STRING COMMENT
    'requested, stopping, restoring, committed, backfilling, done, refused or stale',
  refusal STRING COMMENT 'why it was refused, or what is still to be repeated',
  detail MAP<STRING, STRING> COMMENT 'what else there is to say: expired, left out',
  findings ARRAY<STRUCT<subject: STRING, option: STRING, message: STRING, remedy: STRING>>
    COMMENT 'all that it was refused for',
  seconds DOUBLE COMMENT 'from its beginning until the sources could go on',
  undoes STRING COMMENT 'the operation that it takes back',
  acknowledged STRING COMMENT 'who has seen it'
) COMMENT 'the history of unsafe operations; its rows are never taken away'
AS SELECT
  key AS operation,
  CASE
    WHEN get_json_object(value, '$.unsafe.undoes') IS NOT NULL THEN 'undo'
    WHEN get_json_object(value, '$.unsafe.keys') IS NOT NULL THEN 'alter'
    WHEN get_json_object(value, '$.unsafe.reset') = 'true' THEN 'reset'
    ELSE 'inject'
  END AS kind,
  get_json_object(value, '$.unsafe.at') AS `at`,
  get_json_object(value, '$.unsafe.who') AS who,
  get_json_object(value, '$.unsafe.host') AS host,
  get_json_object(value, '$.unsafe.reason') AS reason,
  from_json(get_json_object(value, '$.unsafe.sources'), 'ARRAY<STRING>') AS sources,
  from_json(get_json_object(value, '$.unsafe.jobs'), 'ARRAY<STRING>') AS jobs,
  from_json(get_json_object(value, '$.unsafe.keys'), 'ARRAY<STRING>') AS `keys`,
  coalesce(get_json_object(value, '$.unsafe.reset'), 'false') = 'true' AS reset,
  CAST(coalesce(get_json_object(value, '$.unsafe.injected'), '0') AS BIGINT) AS injected,
  from_json(get_json_object(value, '$.unsafe.partitions'), 'ARRAY<STRING>') AS partitions,
  CAST(coalesce(get_json_object(value, '$.unsafe.doubled'), '0') AS BIGINT) AS doubled,
  CAST(coalesce(get_json_object(value, '$.unsafe.skipped'), '0') AS BIGINT) AS skipped,
  CAST(coalesce(get_json_object(value, '$.unsafe.expired'), '0') AS BIGINT) AS expired,
  coalesce(get_json_object(value, '$.unsafe.exact'), 'false') = 'true' AS exact,
  CAST(get_json_object(value, '$.unsafe.actual_doubled') AS BIGINT) AS actual_doubled,
  CAST(get_json_object(value, '$.unsafe.actual_skipped') AS BIGINT) AS actual_skipped,
  CAST(get_json_object(value, '$.unsafe.restored') AS BIGINT) AS restored,
  CAST(coalesce(get_json_object(value, '$.unsafe.removed'), '0') AS BIGINT) AS removed,
  CAST(coalesce(get_json_object(value, '$.unsafe.brought_back'), '0') AS BIGINT) AS brought_back,
  CAST(
    coalesce(get_json_object(value, '$.unsafe.backfill_records'), '0') AS BIGINT
  ) AS backfill_records,
  coalesce(
    get_json_object(value, '$.detail.phase'), get_json_object(value, '$.detail.backfill')
  ) AS backfill,
  get_json_object(value, '$.state') AS state,
  get_json_object(value, '$.detail.reason') AS refusal,
  from_json(get_json_object(value, '$.detail'), 'MAP<STRING, STRING>') AS detail,
  from_json(
    get_json_object(value, '$.findings'),
    'ARRAY<STRUCT<subject: STRING, option: STRING, message: STRING, remedy: STRING>>'
  ) AS findings,
  CAST(get_json_object(value, '$.unsafe.seconds') AS DOUBLE) AS seconds,
  get_json_object(value, '$.unsafe.undoes') AS undoes,
  get_json_object(value, '$.unsafe.acknowledged') AS acknowledged
FROM catalog_migrate.records
WHERE kind = 'operation' AND get_json_object(value, '$.kind') = 'unsafe';
