use crate::{connect, Failure};
use serde::{Deserialize, Serialize};
use tokio_postgres::{Client, Error, Transaction};

#[derive(Serialize, Deserialize)]
pub struct Placed {
    pub order_id: String,
    pub version: i32,
    pub cents: i64,
}

impl Placed {
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("a struct of plain values")
    }
}

/// The business row; its lock makes writers of one order wait for each other.
pub async fn store_order(
    transaction: &Transaction<'_>,
    order: &str,
    customer: &str,
    cents: i64,
) -> Result<Placed, Error> {
    let row = transaction
        .query_one(
            "INSERT INTO orders (id, customer, cents) VALUES ($1, $2, $3)
             ON CONFLICT (id) DO UPDATE SET cents = orders.cents + excluded.cents,
                 version = orders.version + 1 RETURNING version",
            &[&order, &customer, &cents],
        )
        .await?;
    Ok(Placed { order_id: order.to_string(), version: row.get(0), cents })
}

async fn place_order(
    client: &mut Client,
    order: &str,
    customer: &str,
    cents: i64,
) -> Result<i32, Error> {
    // Dropped without a commit, it rolls back.
    let transaction = client.transaction().await?;
    let placed = store_order(&transaction, order, customer, cents).await?;
    transaction
        .execute(
            "INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
             VALUES ('Order', $1, 'OrderPlaced', $2::text::jsonb)",
            &[&order, &placed.json()],
        )
        .await?;
    transaction.commit().await?;
    Ok(placed.version)
}

pub async fn run() -> Result<(), Failure> {
    let mut client = connect().await?;
    let mut refused = 0;
    for line in std::io::stdin().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let [order, customer, cents] = words[..] else {
            return Err(format!("{line:?} is not ORDER CUSTOMER CENTS").into());
        };
        match place_order(&mut client, order, customer, cents.parse()?).await {
            Ok(version) => println!("placed {order} {version}"),
            Err(error) => {
                eprintln!("refused {order} {error}");
                refused += 1;
            }
        }
    }
    if refused > 0 {
        return Err("not all orders were placed".into());
    }
    Ok(())
}
