// https://pgboss.io: jobs are fetched and settled in batches, each with an outcome of its own. A worker that got a full batch
// fetches again at once; otherwise it looks every half second, which is the least. To be woken by NOTIFY instead is quicker for
// a single job, and slower for many: of jobs that are added one at a time, a third to a fifth as many came in a second.

import { PgBoss } from 'pg-boss';

const QUEUE = 'webhooks';
const WORKERS = 4;

export async function open({ database, inFlight }) {
  const boss = new PgBoss({ connectionString: database, max: 20, schedule: false });
  boss.on('error', console.error);
  await boss.start();
  return {
    prepare: () => boss.createQueue(QUEUE, { retryLimit: 4, retryDelay: 30, retryBackoff: true }),
    addList: (jobs) => boss.insert(QUEUE, jobs.map((data) => ({ data }))),
    add: (job) => boss.send(QUEUE, job),
    async left() {
      const { rows } = await boss.getDb().executeSql("select count(*) from pgboss.job where state <> 'completed'");
      return rows[0].count;
    },
    async work(post) {
      const options = {
        localConcurrency: WORKERS,
        batchSize: Math.ceil(inFlight / WORKERS),
        burstWhenBatchFull: true,
        perJobResults: true,
        pollingIntervalSeconds: 0.5,
      };
      const outcome = ({ id, data }) => post(data).then(
        () => ({ id, status: 'completed' }),
        (error) => ({ id, status: 'failed', output: error.message }),
      );
      await boss.work(QUEUE, options, (jobs) => Promise.all(jobs.map(outcome)));
      return () => boss.stop();
    },
    close: () => boss.stop(),
  };
}
