// https://docs.bullmq.io, on Redis or on Postgres by the scheme of the database's URL. A job that is done is removed; finishing
// one job fetches the next in the same round trip.

import { setTimeout } from 'node:timers/promises';

import { Queue, Worker, createPostgresBackend, createRedisBackend, runMigrations } from 'bullmq';
import Redis from 'ioredis';
import pg from 'pg';

const QUEUE = 'webhooks';
const JOB = { attempts: 5, backoff: { type: 'exponential', delay: 30_000 }, removeOnComplete: true };

export async function open({ database, inFlight = 16 }) {
  const isPostgres = database.startsWith('postgres');
  const backend = isPostgres ? createPostgresBackend : createRedisBackend;
  const connection = isPostgres
    ? { connectionString: database, max: Math.min(inFlight, 80) }
    : new Redis(database, { maxRetriesPerRequest: null });
  // Made when it is asked for, since the tables may not be there yet, and a worker needs none.
  let queue;
  const jobs = () => (queue ??= new Queue(QUEUE, { connection, defaultJobOptions: JOB }, backend));
  return {
    async prepare() {
      if (isPostgres) {
        const client = new pg.Client({ connectionString: database });
        await client.connect();
        await runMigrations(client);
        await client.end();
      }
    },
    addList: (list) => jobs().addBulk(list.map((data) => ({ name: 'webhook', data }))),
    add: (data) => jobs().add('webhook', data),
    // Redis rewrites a log that has grown, in a process beside it, which is the adding's and not the worker's.
    async rest() {
      while (!isPostgres && (await connection.info('persistence')).includes('aof_rewrite_in_progress:1')) {
        await setTimeout(50);
      }
    },
    async left() {
      const { completed, ...others } = await jobs().getJobCounts();
      return Object.values(others).reduce((sum, count) => sum + count, 0);
    },
    async work(post) {
      const worker = new Worker(QUEUE, (job) => post(job.data), { connection, concurrency: inFlight }, backend);
      worker.on('error', console.error);
      return () => worker.close();
    },
    async close() {
      await queue?.close();
      if (!isPostgres) {
        await connection.quit();
      }
    },
  };
}
