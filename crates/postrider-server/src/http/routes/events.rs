//! `/v1/events`.

use axum::Json;
use axum::extract::{Request, State};
use http::{HeaderMap, StatusCode};
use postrider::EventId;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::api::events::{EnqueuedBatch, EnqueuedEvent, Event, EventRequest, EventsQuery};
use crate::api::object::Object;
use crate::api::{Listing, Problem};
use crate::http::AppState;
use crate::http::auth::{Reader, Writer};
use crate::http::body;
use crate::http::extract::{Id, NoQuery, Query};

/// What an event may have beside its payload.
const BESIDE_PAYLOAD_BYTES: usize = 64 * 1024;

/// What a batch may have in all.
const BATCH_BYTES: usize = 32 * 1024 * 1024;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(enqueue, list)).routes(routes!(enqueue_batch)).routes(routes!(show))
}

/// Enqueue an event.
///
/// It is written together with one delivery per destination before the answer is sent. With a `destination_url` it goes
/// there; otherwise to the endpoint that is named, or to every endpoint that wants its type.
///
/// Under the same `Idempotency-Key` and with the same content, the first event is answered again.
#[utoipa::path(post, path = "/v1/events", tag = "events",
    params(("Idempotency-Key" = Option<String>, Header, description = "At most one event is enqueued under a key, for ever.",
        min_length = 1, max_length = 255)),
    request_body = EventRequest,
    responses(
        (status = 202, body = EnqueuedEvent, description = "Enqueued"),
        (status = 200, body = EnqueuedEvent, description = "Nothing was written: `duplicate` is true, or `claimed` is false"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "The idempotency key belongs to an event with other content"),
    ))]
async fn enqueue(
    State(state): State<AppState>,
    Writer(caller): Writer,
    _: NoQuery,
    request: Request,
) -> Result<(StatusCode, Json<EnqueuedEvent>), Problem> {
    let most_bytes = state.service().settings().admission.max_payload_bytes + BESIDE_PAYLOAD_BYTES;
    let key = idempotency_key(request.headers())?;
    let body = body::read_json(request, &state, most_bytes).await?;
    let Object(mut event): Object<EventRequest> = body::parse(&body)?;
    match (&event.idempotency_key, key) {
        (Some(own), Some(key)) if *own != key => {
            let detail = "the header and the body have different idempotency keys";
            return Err(Problem::new(422, "idempotency_key_ambiguous", detail).about("idempotency_key"));
        }
        (_, None) => {}
        (_, Some(key)) => event.idempotency_key = Some(key),
    }
    let enqueued = state.service().enqueue(&caller, event).await?;
    let nothing_written = enqueued.duplicate || enqueued.claimed == Some(false);
    let status = if nothing_written { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, Json(enqueued)))
}

/// Enqueue several events.
///
/// All or none: if one cannot be accepted, none is written, and the problem names the place of the first such. An event whose
/// subject is claimed already is no problem; it is not written, and its result says so.
#[utoipa::path(post, path = "/v1/events/batch", tag = "events",
    request_body(content = Vec<EventRequest>, description = "1 to 1,000 events, at most 32 MiB"),
    responses(
        (status = 202, body = EnqueuedBatch, description = "Enqueued"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "An idempotency key belongs to an event with other content"),
    ))]
async fn enqueue_batch(
    State(state): State<AppState>,
    Writer(caller): Writer,
    _: NoQuery,
    request: Request,
) -> Result<(StatusCode, Json<EnqueuedBatch>), Problem> {
    if request.headers().contains_key(IDEMPOTENCY_KEY) {
        let detail = "in a batch, each event has its own idempotency_key";
        return Err(Problem::new(422, "idempotency_key_ambiguous", detail).about("Idempotency-Key"));
    }
    // Kept until the end, so that what was made of it is counted as well.
    let body = body::read_json(request, &state, BATCH_BYTES).await?;
    let events: Vec<Object<EventRequest>> = body::parse(&body)?;
    let events = events.into_iter().map(|Object(event)| event).collect();
    let enqueued = state.service().enqueue_batch(&caller, events).await?;
    Ok((StatusCode::ACCEPTED, Json(enqueued)))
}

/// List events.
///
/// Newest first, with payloads and deliveries.
#[utoipa::path(get, path = "/v1/events", tag = "events", params(EventsQuery),
    responses((status = 200, body = Listing<Event>)))]
async fn list(
    State(state): State<AppState>,
    Reader(caller): Reader,
    Query(query): Query<EventsQuery>,
) -> Result<Json<Listing<Event>>, Problem> {
    state.service().events(&caller, &query).await.map(Json)
}

/// Show an event.
#[utoipa::path(get, path = "/v1/events/{id}", tag = "events",
    params(("id" = String, Path, description = "The event's id")),
    responses(
        (status = 200, body = Event),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such event"),
    ))]
async fn show(
    State(state): State<AppState>,
    Reader(caller): Reader,
    Id(id): Id<EventId>,
    _: NoQuery,
) -> Result<Json<Event>, Problem> {
    state.service().event(&caller, id).await.map(Json)
}

const IDEMPOTENCY_KEY: &str = "idempotency-key";

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut given = headers.get_all(IDEMPOTENCY_KEY).iter();
    match (given.next().map(|key| key.to_str()), given.next()) {
        (None, _) => Ok(None),
        (Some(Ok(key)), None) => Ok(Some(key.to_owned())),
        _ => {
            let detail = "Idempotency-Key is given once, as printable ASCII";
            Err(Problem::new(422, "idempotency_key_invalid", detail).about("Idempotency-Key"))
        }
    }
}
