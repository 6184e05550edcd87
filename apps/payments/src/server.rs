//! `payments server`: the HTTP API.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use http::{HeaderMap, StatusCode, header};
use postrider::destination::Rule;
use postrider::{DestinationPolicy, duration};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::net::TcpListener;
use tracing::{error, info};
use utoipa::ToSchema;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::failure::Failure;
use crate::object::Object;
use crate::requests::{PaymentRequest, Requests};

const MOST_BODY_BYTES: usize = 16 * 1024;
const DEFAULT_EXPIRES_IN: Duration = Duration::from_hours(1);
const LONGEST_EXPIRES_IN: Duration = Duration::from_hours(30 * 24);

#[derive(Debug)]
struct Api {
    requests: Requests,
    destinations: DestinationPolicy,
}

/// Answers on `listener` until `shutdown`, then finishes what was begun.
pub(crate) async fn run(
    requests: Requests,
    destinations: DestinationPolicy,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Failure> {
    let (router, openapi) = documented();
    let openapi = async move || Json(openapi.clone());
    let router = router
        .route("/openapi.json", axum::routing::get(openapi))
        .fallback(async || Problem::new(StatusCode::NOT_FOUND, "route_not_found", "there is nothing at this path"))
        .method_not_allowed_fallback(async || {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "this path takes another method")
        })
        .layer(DefaultBodyLimit::max(MOST_BODY_BYTES))
        .with_state(Arc::new(Api { requests, destinations }));
    let served = axum::serve(listener, router).with_graceful_shutdown(shutdown).await;
    served.map_err(|error| Failure::Io("the server cannot go on".to_owned(), error))
}

fn documented() -> (Router<Arc<Api>>, OpenApi) {
    let (router, mut openapi) =
        OpenApiRouter::new().routes(routes!(create)).routes(routes!(show)).routes(routes!(health)).split_for_parts();
    "Payment requests".clone_into(&mut openapi.info.title);
    openapi.info.description = Some("Payment requests whose changes of status are told by webhook.".to_owned());
    (router, openapi)
}

/// What a client asks for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewPaymentRequest {
    /// Where the payment is expected: `0x` and 40 hexadecimal digits. An address takes one payment request, ever.
    #[schema(example = "0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed")]
    address: String,
    /// How much, in wei, as a decimal text.
    #[schema(example = "1000000000000000000")]
    amount_wei: String,
    /// Who is told when the status changes; required, and its host must be allowed. Any JSON is taken here, so that what is
    /// wrong can be said with a code of its own.
    #[serde(default)]
    #[schema(value_type = String, required = true, format = "uri", example = "https://hooks.example.com/payments")]
    webhook_url: Value,
    /// For how long it can be paid, up to `30d`.
    #[serde(default)]
    #[schema(default = "1h", example = "30m")]
    expires_in: Option<String>,
}

/// Make a payment request.
#[utoipa::path(post, path = "/v1/payment-requests", request_body = NewPaymentRequest,
    responses(
        (status = 201, body = PaymentRequest, description = "Made"),
        (status = 400, body = Problem, content_type = "application/problem+json", description = "Not JSON, or not an object with these fields: `body_invalid`"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "`address_in_use`"),
        (status = 413, body = Problem, content_type = "application/problem+json", description = "`body_too_large`"),
        (status = 415, body = Problem, content_type = "application/problem+json", description = "`content_type_invalid`"),
        (status = 422, body = Problem, content_type = "application/problem+json", description = "`webhook_url_required`, `webhook_url_invalid`, `webhook_url_not_allowed`, `address_invalid`, `amount_wei_invalid` or `expires_in_invalid`"),
    ))]
async fn create(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    body: Result<axum::body::Bytes, BytesRejection>,
) -> Result<(StatusCode, Json<PaymentRequest>), Problem> {
    let created = api.create(&headers, body).await;
    if let Err(problem) = &created {
        info!(code = problem.code, "a payment request was refused");
    }
    Ok((StatusCode::CREATED, Json(created?)))
}

impl Api {
    async fn create(
        &self,
        headers: &HeaderMap,
        body: Result<axum::body::Bytes, BytesRejection>,
    ) -> Result<PaymentRequest, Problem> {
        let asked = parse(headers, &body.map_err(|rejection| unreadable(&rejection))?)?;
        let webhook_url = check_webhook_url(&self.destinations, &asked.webhook_url)?;
        let address = check_address(&asked.address)?;
        let amount_wei = check_amount(&asked.amount_wei)?;
        let expires_in = check_expires_in(asked.expires_in.as_deref())?;
        let created = self.requests.create(&address, amount_wei, &webhook_url, expires_in).await?;
        let in_use = || {
            let detail = format!("there is a payment request for {address} already");
            Problem::new(StatusCode::CONFLICT, "address_in_use", detail)
        };
        created.ok_or_else(in_use)
    }
}

/// Look at a payment request.
#[utoipa::path(get, path = "/v1/payment-requests/{id}", params(("id" = Uuid, Path)),
    responses(
        (status = 200, body = PaymentRequest, description = "As it is now"),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "`payment_request_not_found`"),
    ))]
async fn show(State(api): State<Arc<Api>>, Path(id): Path<String>) -> Result<Json<PaymentRequest>, Problem> {
    let not_found =
        || Problem::new(StatusCode::NOT_FOUND, "payment_request_not_found", "there is no payment request of this id");
    // What is no id names nothing.
    let id = Uuid::try_parse(&id).map_err(|_| not_found())?;
    api.requests.show(id).await?.map(Json).ok_or_else(not_found)
}

/// Whether the process answers.
#[utoipa::path(get, path = "/healthz", responses((status = 200, body = String, description = "It does")))]
async fn health() -> &'static str {
    "ok"
}

fn unreadable(rejection: &BytesRejection) -> Problem {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        let detail = format!("the body has more than {MOST_BODY_BYTES} bytes");
        return Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail);
    }
    Problem::new(StatusCode::BAD_REQUEST, "body_invalid", "the body could not be read to its end")
}

fn parse(headers: &HeaderMap, body: &[u8]) -> Result<NewPaymentRequest, Problem> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        let detail = "the content type is not application/json";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_type_invalid", detail));
    }
    let parsed = serde_json::from_slice(body);
    parsed.map(|Object(request)| request).map_err(|error| {
        Problem::new(StatusCode::BAD_REQUEST, "body_invalid", format!("the body does not fit: {error}"))
    })
}

/// The destination in canonical form, by which it is stored, shown and later dialled.
fn check_webhook_url(destinations: &DestinationPolicy, url: &Value) -> Result<String, Problem> {
    let field = "webhook_url";
    let url = match url {
        Value::Null => "",
        Value::String(url) => url,
        _ => return Err(Problem::field(field, "webhook_url_invalid", "webhook_url is not a text")),
    };
    if url.trim().is_empty() {
        let detail = "webhook_url is required: it says who is told when the status changes";
        return Err(Problem::field(field, "webhook_url_required", detail));
    }
    let explanation = destinations.explain(url);
    match (&explanation.result, explanation.refused_by()) {
        (Ok(destination), _) => Ok(destination.as_str().to_owned()),
        (_, Some((Rule::Https | Rule::HostName | Rule::Address | Rule::Allowlist, refusal))) => {
            Err(Problem::field(field, "webhook_url_not_allowed", refusal.detail.clone()))
        }
        (Err(refusal), _) => Err(Problem::field(field, "webhook_url_invalid", refusal.detail.clone())),
    }
}

fn check_address(address: &str) -> Result<String, Problem> {
    let digits = address.strip_prefix("0x").unwrap_or_default();
    if digits.len() == 40 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Ok(address.to_ascii_lowercase());
    }
    Err(Problem::field("address", "address_invalid", "address is not `0x` and 40 hexadecimal digits"))
}

fn check_amount(amount: &str) -> Result<u128, Problem> {
    let is_plain = !amount.is_empty() && amount.bytes().all(|digit| digit.is_ascii_digit());
    let amount = amount.parse().ok().filter(|amount| is_plain && *amount > 0);
    let detail = "amount_wei is not a whole number of wei from 1 to 2^128 - 1, written in decimal";
    amount.ok_or_else(|| Problem::field("amount_wei", "amount_wei_invalid", detail))
}

fn check_expires_in(text: Option<&str>) -> Result<Duration, Problem> {
    let Some(text) = text else { return Ok(DEFAULT_EXPIRES_IN) };
    let invalid = |detail: String| Problem::field("expires_in", "expires_in_invalid", detail);
    let expires_in = duration::parse(text).map_err(|problem| invalid(format!("expires_in is {problem}")))?;
    if expires_in.is_zero() || expires_in > LONGEST_EXPIRES_IN {
        return Err(invalid("expires_in is not from 1ms to 30d".to_owned()));
    }
    Ok(expires_in)
}

/// Why a request was not done: RFC 9457, with a stable code.
#[derive(Debug, Serialize, ToSchema)]
struct Problem {
    /// The status, in words.
    title: String,
    /// The HTTP status.
    status: u16,
    /// Stable, for programs.
    code: &'static str,
    /// For people.
    detail: String,
    /// What is wrong with which field.
    errors: Vec<FieldProblem>,
}

/// What is wrong with one field.
#[derive(Debug, Serialize, ToSchema)]
struct FieldProblem {
    /// Which one.
    field: &'static str,
    /// Stable, for programs.
    code: &'static str,
    /// For people.
    detail: String,
}

impl Problem {
    fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or("Error").to_owned();
        Self { title, status: status.as_u16(), code, detail: detail.into(), errors: Vec::new() }
    }

    fn field(field: &'static str, code: &'static str, detail: impl Into<String>) -> Self {
        let problem = Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail);
        let error = FieldProblem { field, code, detail: problem.detail.clone() };
        Self { errors: vec![error], ..problem }
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        // What broke is for our log; whoever asked can only try again.
        error!("a request failed: {failure}");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "the database cannot be used now; try again later")
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, [(header::CONTENT_TYPE, "application/problem+json")], Json(self)).into_response()
    }
}
