// Orders and their billing, in Node; the folder above says what the commands do.
//
// usage: orders.js emit|consume|receive|serve

import { createHash } from "node:crypto";
import http from "node:http";
import readline from "node:readline";
import { setTimeout } from "node:timers/promises";
import { Kafka, logLevel } from "kafkajs";
import pg from "pg";

const MAX_BODY_BYTES = 65536;
const { DATABASE_URL, KAFKA_BROKERS, KAFKA_GROUP, KAFKA_TOPIC, PORT } = process.env;

/** Runs `work` in a transaction of this connection; rolls back where it fails. */
async function transaction(connection, work) {
  await connection.query("BEGIN");
  try {
    const result = await work();
    await connection.query("COMMIT");
    return result;
  } catch (error) {
    await connection.query("ROLLBACK");
    throw error;
  }
}

/** The business row; its lock makes writers of one order wait for each other. */
async function storeOrder(connection, order, customer, cents) {
  const { rows } = await connection.query(
    `INSERT INTO orders (id, customer, cents) VALUES ($1, $2, $3)
     ON CONFLICT (id) DO UPDATE SET cents = orders.cents + excluded.cents,
         version = orders.version + 1 RETURNING version`,
    [order, customer, cents],
  );
  return { order_id: order, version: rows[0].version, cents };
}

function placeOrder(connection, order, customer, cents) {
  return transaction(connection, async () => {
    const placed = await storeOrder(connection, order, customer, cents);
    await connection.query(
      `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
       VALUES ('Order', $1, 'OrderPlaced', $2)`,
      [order, JSON.stringify(placed)],
    );
    return placed.version;
  });
}

async function emit() {
  const connection = new pg.Client(DATABASE_URL);
  await connection.connect();
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [order, customer, cents] = line.split(" ");
    try {
      console.log("placed", order, await placeOrder(connection, order, customer, Number(cents)));
    } catch (error) {
      console.error("refused", order, error.message);
      process.exitCode = 1;
    }
  }
  await connection.end();
}

async function bill(connection, message) {
  const { id, occurred_at } = message.headers;
  const event = JSON.parse(message.value);
  const isNew = await transaction(connection, async () => {
    const { rows } = await connection.query(
      "SELECT inbox_accept('billing', $1, $2) AS is_new",
      [id.toString(), occurred_at.toString()],
    );
    if (rows[0].is_new) {
      await connection.query(
        `INSERT INTO invoices (order_id, version, cents) VALUES ($1, $2, $3)
         ON CONFLICT (order_id) DO UPDATE SET version = excluded.version,
             cents = invoices.cents + excluded.cents`,
        [event.order_id, event.version, event.cents],
      );
    }
    return rows[0].is_new;
  });
  console.log(isNew ? "applied" : "repeat", event.order_id, event.version);
}

async function consume() {
  const connection = new pg.Client(DATABASE_URL);
  await connection.connect();
  const kafka = new Kafka({ brokers: KAFKA_BROKERS.split(","), logLevel: logLevel.ERROR });
  const consumer = kafka.consumer({
    groupId: KAFKA_GROUP,
    sessionTimeout: 6000,
    heartbeatInterval: 2000,
  });
  await consumer.connect();
  await consumer.subscribe({ topics: [KAFKA_TOPIC], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ topic, partition, message }) => {
      try {
        await bill(connection, message);
      } catch (error) {
        console.error(`${topic}/${partition}/${message.offset}: ${error.message}`);
        process.exit(1);
      }
      const offset = (BigInt(message.offset) + 1n).toString();
      await consumer.commitOffsets([{ topic, partition, offset }]);
    },
  });
  process.once("SIGTERM", async () => {
    await consumer.disconnect(); // after the message under way
    await connection.end();
  });
}

/** Takes and applies in one transaction; false where nothing was there. */
async function billFromMailbox(connection) {
  let position;
  const billed = [];
  try {
    await transaction(connection, async () => {
      const { rows } = await connection.query(
        "SELECT position, payload FROM outbox_mailbox_take('billing', 'default', 100)",
      );
      for (const message of rows) {
        ({ position } = message); // a bigint, which pg gives as text
        const event = JSON.parse(message.payload);
        await connection.query(
          `INSERT INTO invoices (order_id, version, cents) VALUES ($1, $2, $3)
           ON CONFLICT (order_id) DO UPDATE SET version = excluded.version,
               cents = invoices.cents + excluded.cents`,
          [event.order_id, event.version, event.cents],
        );
        await connection.query("SELECT outbox_mailbox_done('billing', 'default', $1)", [position]);
        billed.push(event);
      }
    });
  } catch (error) {
    if (error.code === "40001" || error.code === "40P01") return true; // nothing happened; again
    if (position === undefined) throw error;
    // All of it was rolled back; the others come again at once, this one and its key later.
    await connection.query("SELECT outbox_mailbox_failed('billing', 'default', $1, $2)", [
      position, error.message,
    ]);
    console.error("failed", position, error.message);
    return true;
  }
  for (const event of billed) console.log("applied", event.order_id, event.version);
  return billed.length > 0;
}

async function receive() {
  let stopped = false;
  process.once("SIGTERM", () => (stopped = true));
  const connection = new pg.Client(DATABASE_URL);
  await connection.connect();
  while (!stopped) {
    if (!(await billFromMailbox(connection))) await setTimeout(100);
  }
  await connection.end();
}

class BadRequest extends Error {}

function parseOrder(body) {
  let order;
  try {
    order = JSON.parse(body);
  } catch (error) {
    throw new BadRequest(error.message);
  }
  if (typeof order?.order_id !== "string" || !Number.isSafeInteger(order.cents)) {
    throw new BadRequest("order_id (text) and cents (a whole number) are needed");
  }
  return order;
}

/** The answer to POST /orders; claim, order, event and answer commit together. */
function answer(connection, caller, key, body) {
  const order = parseOrder(body);
  const request = createHash("sha256").update("POST /orders\n").update(body).digest("hex");
  return transaction(connection, async () => {
    const { rows } = await connection.query("SELECT * FROM idempotency_claim($1, $2, $3)", [
      caller, key, request,
    ]);
    const claim = rows[0];
    if (claim.state === "running") return { status: 409, headers: { "Retry-After": "1" } };
    if (claim.state === "mismatch") {
      return { status: 422, body: "the key was used for another request\n" };
    }
    if (claim.state === "repeat") return claim;
    const stored = await storeOrder(connection, order.order_id, caller, order.cents);
    const placed = JSON.stringify(stored);
    await connection.query(
      `SELECT outbox_emit(aggregate_type => 'Order', aggregate_id => $1,
           event_type => 'OrderPlaced', payload => $2)`,
      [order.order_id, placed],
    );
    const headers = { "Content-Type": "application/json" };
    await connection.query("SELECT idempotency_complete($1, $2, $3, 201, $4, $5)", [
      caller, key, claim.attempt, headers, Buffer.from(placed),
    ]);
    return { status: 201, headers, body: placed };
  });
}

async function post(pool, request) {
  const chunks = [];
  let size = 0;
  for await (const chunk of request) {
    size += chunk.length;
    if (size > MAX_BODY_BYTES) return { status: 413 };
    chunks.push(chunk);
  }
  if (request.method !== "POST" || request.url !== "/orders") return { status: 404 };
  // Whoever stands before this service has authenticated the caller.
  const { "x-user": caller, "idempotency-key": key } = request.headers;
  if (!caller || !key || key.length > 255) {
    return { status: 400, body: "X-User and Idempotency-Key (up to 255 bytes) are needed\n" };
  }
  const connection = await pool.connect();
  try {
    return await answer(connection, caller, key, Buffer.concat(chunks));
  } finally {
    connection.release();
  }
}

function failure(error) {
  if (error instanceof BadRequest) return { status: 400, body: `not an order: ${error.message}\n` };
  if (error.code?.startsWith("23")) return { status: 422, body: `refused: ${error.message}\n` };
  console.error(error);
  return { status: 500, body: "rolled back; send it again with the same key\n" };
}

function serve() {
  const pool = new pg.Pool({ connectionString: DATABASE_URL });
  pool.on("error", (error) => console.error(error.message)); // an idle connection broke
  const server = http.createServer(async (request, response) => {
    const { status, headers, body } = await post(pool, request).catch(failure);
    response.writeHead(status, headers ?? {}).end(body);
  });
  server.listen(Number(PORT), "127.0.0.1", () => console.log("listening", server.address().port));
  process.once("SIGTERM", () => server.close(() => pool.end()));
}

const commands = { emit, consume, receive, serve };
if (!commands[process.argv[2]]) {
  console.error("usage: orders.js emit|consume|receive|serve");
  process.exit(2);
}
await commands[process.argv[2]]();
