// https://worker.graphile.org: with its local queue and batched completion, as on its page about performance. After a fetch of few
// it waits for ten milliseconds, so that jobs that are added one at a time are not fetched one at a time. Whether that makes it faster
// was not clear: of two comparisons it won one.

import { Logger, makeWorkerUtils, run } from 'graphile-worker';
import pg from 'pg';

const TASK = 'webhook';
const MOST_ATTEMPTS = 5;
const CONNECTIONS = 25;

const logger = new Logger(() => (level, message) => {
  if (level === 'error') {
    console.error(message);
  }
});

export async function open({ database, inFlight = 1 }) {
  const pgPool = new pg.Pool({ connectionString: database, max: CONNECTIONS });
  pgPool.on('error', console.error);
  pgPool.on('connect', (client) => client.on('error', console.error));
  const utils = await makeWorkerUtils({ pgPool, logger });
  return {
    prepare: () => utils.migrate(),
    addList: (jobs) => utils.addJobs(jobs.map((payload) => ({ identifier: TASK, payload, maxAttempts: MOST_ATTEMPTS }))),
    add: (job) => utils.addJob(TASK, job, { maxAttempts: MOST_ATTEMPTS }),
    async left() {
      const { rows } = await pgPool.query('select count(*) from graphile_worker.jobs');
      return rows[0].count;
    },
    async work(post) {
      const preset = {
        worker: {
          connectionString: database,
          concurrentJobs: inFlight,
          // Fewer than jobs: with batches on both ends, hardly any of them waits for one.
          maxPoolSize: CONNECTIONS,
          localQueue: { size: Math.max(500, 2 * inFlight), refetchDelay: { durationMs: 10, threshold: inFlight } },
          completeJobBatchDelay: 0,
          failJobBatchDelay: 0,
          logger,
        },
      };
      const runner = await run({ preset, noHandleSignals: true, taskList: { [TASK]: post } });
      return () => runner.stop();
    },
    async close() {
      await utils.release();
      await pgPool.end();
    },
  };
}
