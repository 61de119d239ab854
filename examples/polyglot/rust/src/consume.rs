use crate::emit::Placed;
use crate::{connect, setting, Failure};
use rdkafka::consumer::{CommitMode, Consumer, StreamConsumer};
use rdkafka::message::{BorrowedMessage, Headers};
use rdkafka::{ClientConfig, Message};
use tokio::signal::unix::{signal, SignalKind};
use tokio_postgres::Client;

fn header<'a>(message: &'a BorrowedMessage, name: &str) -> Result<&'a str, Failure> {
    let value = message
        .headers()
        .and_then(|headers| headers.iter().find(|header| header.key == name))
        .and_then(|header| header.value)
        .ok_or_else(|| format!("a message without the header {name}"))?;
    Ok(std::str::from_utf8(value)?)
}

async fn bill(client: &mut Client, message: &BorrowedMessage<'_>) -> Result<(), Failure> {
    let event: Placed = serde_json::from_slice(message.payload().unwrap_or_default())?;
    let transaction = client.transaction().await?;
    let is_new: bool = transaction
        .query_one(
            "SELECT inbox_accept('billing', $1, $2::text::timestamptz)",
            &[&header(message, "id")?, &header(message, "occurred_at")?],
        )
        .await?
        .get(0);
    if is_new {
        transaction
            .execute(
                "INSERT INTO invoices (order_id, version, cents) VALUES ($1, $2, $3)
                 ON CONFLICT (order_id) DO UPDATE SET version = excluded.version,
                     cents = invoices.cents + excluded.cents",
                &[&event.order_id, &event.version, &event.cents],
            )
            .await?;
    }
    transaction.commit().await?;
    let said = if is_new { "applied" } else { "repeat" };
    println!("{said} {} {}", event.order_id, event.version);
    Ok(())
}

pub async fn run() -> Result<(), Failure> {
    let mut client = connect().await?;
    let consumer: StreamConsumer = ClientConfig::new()
        .set("bootstrap.servers", setting("KAFKA_BROKERS")?)
        .set("group.id", setting("KAFKA_GROUP")?)
        .set("auto.offset.reset", "earliest")
        .set("enable.auto.commit", "false")
        .set("session.timeout.ms", "6000")
        .create()?;
    consumer.subscribe(&[&setting("KAFKA_TOPIC")?])?;
    let mut stop = signal(SignalKind::terminate())?;
    loop {
        let received = tokio::select! {
            received = consumer.recv() => received,
            _ = stop.recv() => return Ok(()),
        };
        match received {
            Ok(message) => {
                bill(&mut client, &message).await?;
                consumer.commit_message(&message, CommitMode::Sync)?;
            }
            Err(error) => eprintln!("{error}"), // the client goes on by itself
        }
    }
}
