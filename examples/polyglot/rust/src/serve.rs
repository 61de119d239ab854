use crate::emit::store_order;
use crate::{connect, setting, Failure};
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::Router;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use tokio::signal::unix::{signal, SignalKind};
use tokio_postgres::Row;

const MAX_BODY_BYTES: usize = 65536;
const MAX_KEY_BYTES: usize = 255;

#[derive(Deserialize)]
struct Order {
    order_id: String,
    cents: i64,
}

struct Answer {
    status: StatusCode,
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

impl Answer {
    fn new(status: StatusCode, body: &str) -> Self {
        Answer { status, headers: HashMap::new(), body: body.into() }
    }

    fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    fn stored(claim: &Row) -> Result<Self, Failure> {
        let status: i32 = claim.get("status");
        Ok(Answer {
            status: StatusCode::from_u16(status.try_into()?)?,
            headers: serde_json::from_str(claim.get("headers"))?,
            body: claim.get("body"),
        })
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let headers: HeaderMap = self
            .headers
            .iter()
            .filter_map(|(name, value)| {
                Some((name.parse::<HeaderName>().ok()?, value.parse::<HeaderValue>().ok()?))
            })
            .collect();
        (self.status, headers, self.body).into_response()
    }
}

/// The answer to POST /orders; claim, order, event and answer commit together.
async fn answer(caller: &str, key: &str, body: &[u8], order: Order) -> Result<Answer, Failure> {
    let hash = Sha256::new().chain_update("POST /orders\n").chain_update(body).finalize();
    let request = format!("{hash:x}");
    let mut client = connect().await?;
    let transaction = client.transaction().await?;
    let claim = transaction
        .query_one(
            "SELECT state, attempt, status, headers::text, body
             FROM idempotency_claim($1, $2, $3)",
            &[&caller, &key, &request],
        )
        .await?;
    match claim.get("state") {
        "new" => {}
        "running" => {
            return Ok(Answer::new(StatusCode::CONFLICT, "").with("Retry-After", "1"));
        }
        "mismatch" => {
            let why = "the key was used for another request\n";
            return Ok(Answer::new(StatusCode::UNPROCESSABLE_ENTITY, why));
        }
        _ => {
            transaction.commit().await?;
            return Answer::stored(&claim);
        }
    }
    let placed = store_order(&transaction, &order.order_id, caller, order.cents).await?.json();
    transaction
        .execute(
            "SELECT outbox_emit(aggregate_type => 'Order', aggregate_id => $1,
                 event_type => 'OrderPlaced', payload => $2::text::jsonb)",
            &[&order.order_id, &placed],
        )
        .await?;
    let result = Answer::new(StatusCode::CREATED, &placed).with("Content-Type", "application/json");
    transaction
        .execute(
            "SELECT idempotency_complete($1, $2, $3, 201, $4::text::json, $5)",
            &[
                &caller,
                &key,
                &claim.get::<_, i32>("attempt"),
                &serde_json::to_string(&result.headers)?,
                &result.body,
            ],
        )
        .await?;
    transaction.commit().await?;
    Ok(result)
}

fn failure(error: Failure) -> Answer {
    let refused = error
        .downcast_ref::<tokio_postgres::Error>()
        .and_then(|error| error.as_db_error())
        .filter(|error| error.code().code().starts_with("23"));
    if let Some(why) = refused {
        let body = format!("refused: {}\n", why.message());
        return Answer::new(StatusCode::UNPROCESSABLE_ENTITY, &body);
    }
    eprintln!("{error}");
    let body = "rolled back; send it again with the same key\n";
    Answer::new(StatusCode::INTERNAL_SERVER_ERROR, body)
}

async fn orders(headers: HeaderMap, body: Bytes) -> Answer {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    // Whoever stands before this service has authenticated the caller.
    let (Some(caller), Some(key)) = (text("X-User"), text("Idempotency-Key")) else {
        return Answer::new(StatusCode::BAD_REQUEST, "X-User and Idempotency-Key are needed\n");
    };
    if key.is_empty() || key.len() > MAX_KEY_BYTES {
        return Answer::new(StatusCode::BAD_REQUEST, "an Idempotency-Key has 1 to 255 bytes\n");
    }
    match serde_json::from_slice(&body) {
        Ok(order) => answer(caller, key, &body, order).await.unwrap_or_else(failure),
        Err(error) => Answer::new(StatusCode::BAD_REQUEST, &format!("not an order: {error}\n")),
    }
}

pub async fn run() -> Result<(), Failure> {
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{}", setting("PORT")?)).await?;
    println!("listening {}", listener.local_addr()?.port());
    let service = Router::new()
        .route("/orders", post(orders))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES));
    let mut stop = signal(SignalKind::terminate())?;
    axum::serve(listener, service)
        .with_graceful_shutdown(async move {
            stop.recv().await;
        })
        .await?;
    Ok(())
}
