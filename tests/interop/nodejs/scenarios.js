// The scenarios of ../java-grpc/GrpcScenarios.java with stock's client for Node.js.
'use strict';
const readline = require('node:readline');
const { isDeepStrictEqual } = require('node:util');
const { crc32 } = require('node:zlib');
const {
  ConsumeResult,
  FilterExpression,
  Producer,
  PushConsumer,
  SimpleConsumer,
} = require('rocketmq-client-nodejs');
const {
  FilterType,
  TransactionResolution,
} = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const INVISIBLE_MS = 60_000;
const LIMIT_MS = 180_000;
const LARGE = 3 << 20;

const logger = Object.fromEntries(
  ['debug', 'info', 'warn', 'error'].map(level => [
    level,
    level === 'debug' ? () => {} : (...words) => console.error(level, ...words),
  ]),
);

function note(...words) {
  process.stdout.write(`${words.join('\t')}\n`);
}

function failed(scenario, error) {
  console.error(scenario, error);
  note(scenario, 'failed', String(error).replace(/\s+/g, ' '));
}

class Scenarios {
  constructor(endpoints, prefix) {
    this.options = { endpoints, namespace: '', logger, requestTimeout: 30_000 };
    this.prefix = prefix;
    this.producers = {};
  }

  async run(scenarios) {
    await Promise.all(scenarios.map(async scenario => {
      try {
        this.producers[scenario] = await this.producer(scenario);
        await this[scenario]();
      } catch (error) {
        failed(scenario, error);
      }
    }));
  }

  /** A producer for each topic: one that has several waits five minutes for settings that it has already. */
  async producer(scenario) {
    const producer = new Producer({
      ...this.options,
      topic: this.topic(scenario),
      checker: {
        check: async message => {
          note('transaction', 'asked', message.body);
          const { COMMIT, ROLLBACK } = TransactionResolution;
          return String(message.body) === 'rolled back' ? ROLLBACK : COMMIT;
        },
      },
    });
    await producer.startup();
    return producer;
  }

  async tags() {
    const consumer = await this.consumer('tags', new FilterExpression('wanted || also'));
    for (const tag of ['wanted', 'unwanted', 'also']) {
      const sent = await this.send('tags', `body ${tag}`, {
        tag,
        keys: ['k-1', 'k-2'],
        properties: new Map([['color', 'red']]),
      });
      note('tags', 'sent', sent.messageId);
    }
    await receive(consumer, async message => {
      const keys = [...message.keys].sort().join(',');
      const color = message.properties.get('color');
      note('tags', 'received', message.messageId, message.body, message.tag, keys, color, message.deliveryAttempt);
      await consumer.ack(message);
      return message.tag === 'also';
    });
  }

  async sql() {
    const expression = new FilterExpression("price > 10 AND color = 'red'", FilterType.SQL);
    const consumer = await this.consumer('sql', expression);
    for (const [color, price] of [['red', '9'], ['blue', '20'], ['red', '20']]) {
      await this.send('sql', `${color} ${price}`, { properties: new Map(Object.entries({ color, price })) });
    }
    await receive(consumer, async message => {
      note('sql', 'received', message.body);
      await consumer.ack(message);
      return true;
    });
  }

  async large() {
    const large = Buffer.alloc(LARGE);
    for (let place = 0; place < LARGE; place++) {
      large[place] = place * 31 + Math.floor(place / 1000);
    }
    const consumer = await this.consumer('large');
    await this.send('large', large);
    await receive(consumer, async message => {
      note('large', isDeepStrictEqual(message.body, large) ? 'same' : 'other', message.body.length);
      await consumer.ack(message);
      return true;
    });
  }

  async invisible() {
    const consumer = await this.consumer('invisible');
    await this.send('invisible', 'shown again');
    await receive(consumer, async message => {
      note('invisible', 'received', message.body, message.deliveryAttempt);
      if (message.deliveryAttempt === 1) {
        await consumer.changeInvisibleDuration(message, 1000);
        return false;
      }
      await consumer.ack(message);
      return true;
    });
  }

  async push() {
    await this.consumed('push', ['good 1', 'once 2', 'never 2'], async seen => {
      await this.pushConsumer('push', message => {
        const line = `${message.body} ${message.deliveryAttempt}`;
        note('push', 'consumed', message.body, message.deliveryAttempt);
        seen.add(line);
        const fails = line.startsWith('never') || line === 'once 1';
        return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
      });
      for (const body of ['good', 'once', 'never']) {
        await this.send('push', body);
      }
    });
  }

  async fifo() {
    await this.consumed('fifo', ['a-2 1', 'b-never 2', 'b-next 1'], async seen => {
      await this.pushConsumer('fifo', message => {
        const line = `${message.body} ${message.deliveryAttempt}`;
        note('fifo', 'consumed', message.messageGroup, message.body, message.deliveryAttempt);
        seen.add(line);
        const fails = line.startsWith('b-never') || line === 'a-1 1';
        return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
      });
      for (const body of ['a-0', 'b-never', 'a-1', 'b-next', 'a-2']) {
        await this.send('fifo', body, { messageGroup: body[0] });
      }
    });
  }

  async delay() {
    const consumer = await this.consumer('delay');
    const anHour = new Date(Date.now() + 3_600_000);
    const sent = await this.send('delay', 'recalled', { deliveryTimestamp: anHour });
    const recalled = await this.producers.delay.recallMessage(this.topic('delay'), sent.recallHandle);
    note('delay', 'recalled', recalled.messageId === sent.messageId);
    const due = Date.now() + 3000;
    await this.send('delay', 'late', { deliveryTimestamp: new Date(due) });
    await receive(consumer, async message => {
      note('delay', 'received', message.body, Date.now() - due);
      await consumer.ack(message);
      return true;
    });
  }

  async transaction() {
    const consumer = await this.consumer('transaction');
    const first = this.producers.transaction.beginTransaction();
    await this.send('transaction', 'committed', {}, first);
    await first.commit();
    const second = this.producers.transaction.beginTransaction();
    await this.send('transaction', 'rolled back', {}, second);
    await second.rollback();
    await this.send('transaction', 'orphan', {}, this.producers.transaction.beginTransaction());
    await receive(consumer, async message => {
      note('transaction', 'received', message.body);
      await consumer.ack(message);
      return String(message.body) === 'orphan';
    });
  }

  async mixed() {
    const consumer = await this.consumer('mixed');
    await this.send('mixed', 'plain');
    await this.send('mixed', 'in order', { messageGroup: 'group' });
    const due = Date.now() + 2000;
    await this.send('mixed', 'late', { deliveryTimestamp: new Date(due) });
    const transaction = this.producers.mixed.beginTransaction();
    await this.send('mixed', 'committed', {}, transaction);
    await transaction.commit();
    const seen = new Set();
    await receive(consumer, async message => {
      note('mixed', 'received', message.body, message.messageGroup || '-', Date.now() - due);
      await consumer.ack(message);
      seen.add(String(message.body));
      return seen.size === 4;
    });
  }

  async 'from-classic'() {
    const consumer = await this.consumer('from-classic');
    const seen = new Set();
    await receive(consumer, async message => {
      const { messageId, tag, keys, body } = message;
      note('from-classic', 'received', messageId, tag, [...keys].join(','), body.length, crc32(body));
      await consumer.ack(message);
      seen.add(tag);
      return seen.size === Number(message.properties.get('of'));
    });
  }

  topic(scenario) {
    return `${this.prefix}-${scenario}`;
  }

  send(scenario, body, more = {}, transaction = undefined) {
    return this.producers[scenario].send({ topic: this.topic(scenario), body: Buffer.from(body), ...more }, transaction);
  }

  async consumer(scenario, expression = FilterExpression.SUB_ALL) {
    const consumer = new SimpleConsumer({
      ...this.options,
      consumerGroup: this.topic(scenario),
      subscriptions: new Map([[this.topic(scenario), expression]]),
      awaitDuration: 5000,
    });
    await consumer.startup();
    return consumer;
  }

  async pushConsumer(scenario, consume) {
    const consumer = new PushConsumer({
      ...this.options,
      consumerGroup: this.topic(scenario),
      subscriptions: new Map([[this.topic(scenario), FilterExpression.SUB_ALL]]),
      messageListener: { consume: async message => consume(message) },
    });
    await consumer.startup();
  }

  /** Runs what makes messages come until `expected` was seen. */
  async consumed(scenario, expected, run) {
    const seen = new Set();
    await run(seen);
    for (const end = Date.now() + LIMIT_MS; !expected.every(each => seen.has(each));) {
      if (Date.now() > end) {
        throw new Error(`not all came: ${scenario}`);
      }
      await new Promise(resolve => setTimeout(resolve, 20));
    }
  }
}

/** Receives until a message is the last one. */
async function receive(consumer, last) {
  const end = Date.now() + LIMIT_MS;
  for (let over = false; !over;) {
    if (Date.now() > end) {
      throw new Error('not all came');
    }
    for (const message of await consumer.receive(16, INVISIBLE_MS)) {
      over = await last(message) || over;
    }
  }
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [endpoint, prefix, ...scenarios] = line.split(' ');
    await new Scenarios(endpoint, prefix).run(scenarios).catch(error => failed('start', error));
    note('done');
  }
  // A clean shutdown of every client would wait for its long polls.
  process.exit(0);
}

main();
