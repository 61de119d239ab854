//! Orders and their billing, in Rust; the folder above says what the commands do.
//!
//! usage: orders emit|consume|receive|serve

mod consume;
mod emit;
mod receive;
mod serve;

use std::error::Error;
use tokio_postgres::{Client, NoTls};

pub type Failure = Box<dyn Error + Send + Sync>;

pub fn setting(name: &str) -> Result<String, Failure> {
    std::env::var(name).map_err(|error| format!("{name}: {error}").into())
}

pub async fn connect() -> Result<Client, Failure> {
    let (client, connection) = tokio_postgres::connect(&setting("DATABASE_URL")?, NoTls).await?;
    // Ends with the client; what went wrong is the answer to the client's statement.
    tokio::spawn(connection);
    Ok(client)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    match std::env::args().nth(1).as_deref() {
        Some("emit") => emit::run().await,
        Some("consume") => consume::run().await,
        Some("receive") => receive::run().await,
        Some("serve") => serve::run().await,
        _ => Err("usage: orders emit|consume|receive|serve".into()),
    }
}
