// What all peers do for a job: one POST of its payload over a connection that is kept. An answer of 2xx is success; with
// anything else the job fails, and its library tries again.

import { Agent, request } from 'undici';

const dispatcher = new Agent({ keepAliveTimeout: 60_000, headersTimeout: 15_000, bodyTimeout: 15_000 });

export async function post({ number, url, payload }) {
  const answer = await request(url, {
    dispatcher,
    method: 'POST',
    // By this header the receivers of the benchmarks tell jobs apart.
    headers: { 'content-type': 'application/json', 'postrider-delivery-id': String(number) },
    body: JSON.stringify(payload),
  });
  await answer.body.dump();
  if (answer.statusCode < 200 || answer.statusCode > 299) {
    throw new Error(`${url} answered ${answer.statusCode}`);
  }
}
