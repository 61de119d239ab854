use crate::emit::Placed;
use crate::{connect, Failure};
use std::time::Duration;
use tokio::signal::unix::{signal, SignalKind};
use tokio_postgres::error::SqlState;
use tokio_postgres::Client;

/// Takes and applies in one transaction. `position`: of the message that is under way.
async fn apply(client: &mut Client, position: &mut Option<i64>) -> Result<Vec<Placed>, Failure> {
    let mut billed = Vec::new();
    let transaction = client.transaction().await?; // rolls back unless it is committed
    let messages = transaction
        .query("SELECT position, payload FROM outbox_mailbox_take('billing', 'default', 100)", &[])
        .await?;
    for message in messages {
        *position = Some(message.get(0));
        let event: Placed = serde_json::from_slice(message.get(1))?;
        transaction
            .execute(
                "INSERT INTO invoices (order_id, version, cents) VALUES ($1, $2, $3)
                 ON CONFLICT (order_id) DO UPDATE SET version = excluded.version,
                     cents = invoices.cents + excluded.cents",
                &[&event.order_id, &event.version, &event.cents],
            )
            .await?;
        transaction
            .execute("SELECT outbox_mailbox_done('billing', 'default', $1)", &[&*position])
            .await?;
        billed.push(event);
    }
    transaction.commit().await?;
    Ok(billed)
}

/// False where nothing was there.
async fn bill_from_mailbox(client: &mut Client) -> Result<bool, Failure> {
    let mut position = None;
    let error = match apply(client, &mut position).await {
        Ok(billed) => {
            for event in &billed {
                println!("applied {} {}", event.order_id, event.version);
            }
            return Ok(!billed.is_empty());
        }
        Err(error) => error,
    };
    let refused = error.downcast_ref::<tokio_postgres::Error>();
    let state = refused.and_then(|refused| refused.code());
    if state == Some(&SqlState::T_R_SERIALIZATION_FAILURE)
        || state == Some(&SqlState::T_R_DEADLOCK_DETECTED)
    {
        return Ok(true); // nothing happened; again
    }
    if position.is_none() || client.is_closed() {
        return Err(error);
    }
    // All of it was rolled back; the others come again at once, this one and its key later.
    let said = refused.and_then(|refused| refused.as_db_error());
    let said = said.map_or(error.to_string(), |said| said.message().to_string());
    client
        .execute("SELECT outbox_mailbox_failed('billing', 'default', $1, $2)", &[&position, &said])
        .await?;
    eprintln!("failed {said}");
    Ok(true)
}

pub async fn run() -> Result<(), Failure> {
    let mut client = connect().await?;
    let mut stop = signal(SignalKind::terminate())?;
    loop {
        let some = bill_from_mailbox(&mut client).await?;
        let wait = Duration::from_millis(if some { 0 } else { 100 });
        tokio::select! {
            biased;
            _ = stop.recv() => return Ok(()),
            _ = tokio::time::sleep(wait) => {}
        }
    }
}
