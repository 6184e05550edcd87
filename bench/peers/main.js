// node main.js <peer> <command> <options as JSON>
//
// A peer is a module beside this one that exports `open(options)`: a queue on a database that is there. Options are
// `database`, `urls` of receivers, `first` and `count` of the jobs to add, and for workers `inFlight`, the most that one
// process sends at a time.

import { post } from './post.js';

const LIST = 1000;
const PRODUCERS = 16;

const [peer, command, text] = process.argv.slice(2);
const options = JSON.parse(text);
const { open } = await import(`./${peer}.js`);
const queue = await open(options);

// A kilobyte of JSON, as Postrider's deliveries have in the same run.
const payload = { text: 'x'.repeat(989) };
const last = options.first + options.count;
const job = (number) => ({ number, url: options.urls[number % options.urls.length], payload });

const commands = {
  // Makes what the library needs in the database.
  async prepare() {
    await queue.prepare();
    await queue.close();
  },

  // Adds jobs in lists, as fast as the library allows.
  async add() {
    for (let first = options.first; first < last; first += LIST) {
      const length = Math.min(LIST, last - first);
      await queue.addList(Array.from({ length }, (_, index) => job(first + index)));
    }
    await queue.rest?.();
    await queue.close();
  },

  // Adds jobs one at a time, by several producers at once.
  async feed() {
    let next = options.first;
    const produce = async () => {
      while (next < last) {
        await queue.add(job(next++));
      }
    };
    await Promise.all(Array.from({ length: PRODUCERS }, produce));
    await queue.close();
  },

  // Prints how many jobs are not recorded as done.
  async left() {
    console.log(await queue.left());
    await queue.close();
  },

  // Works until it is told to stop, and finishes what it has begun.
  async work() {
    const stop = await queue.work(post);
    process.once('SIGTERM', () => stop().then(() => process.exit(0)));
  },
};

await commands[command]();
