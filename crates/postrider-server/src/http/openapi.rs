//! The API's description. Handlers tell what is their own; what all have in common is added here, so that none can
//! forget it.

use std::collections::{BTreeMap, BTreeSet};

use http::StatusCode;
use postrider::{DeliveryId, EndpointId, EventId, KeyId};
use serde_json::Value;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::response::{Response, ResponseBuilder};
use utoipa::openapi::schema::{AdditionalProperties, SchemaType};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{
    Components, ContentBuilder, HeaderBuilder, InfoBuilder, LicenseBuilder, ObjectBuilder, OpenApi, Ref, RefOr,
    Required, Schema, Tag, Type,
};
use utoipa::{PartialSchema as _, ToSchema as _};

use crate::api::{FieldProblem, Problem, schemas};

const OPERATIONS: &str = "operations";
const BEARER: &str = "key";

const TAGS: [(&str, &str); 9] = [
    (
        "events",
        "Facts that others are to hear of. Each is sent to one destination, or to every endpoint that wants its type.",
    ),
    ("endpoints", "Registered receivers."),
    ("deliveries", "One event to one destination, and the attempts made at it."),
    ("once", "Once-only claims: of all who would tell of a subject, one does."),
    ("overview", "How everything stands."),
    ("stream", "Announcements: facts about deliveries, as they happen."),
    ("keys", "API keys."),
    ("audit", "What operators did."),
    (OPERATIONS, "For orchestrators and Prometheus. None of it needs a key."),
];

/// Of what an id in a path is.
const IDS: [(&str, &str); 4] = [
    ("/v1/events/", EventId::PREFIX),
    ("/v1/endpoints/", EndpointId::PREFIX),
    ("/v1/deliveries/", DeliveryId::PREFIX),
    ("/v1/keys/", KeyId::PREFIX),
];

const DESCRIPTION: &str = "\
Webhooks delivered surely, signed, in time, once per change.

Every request but those of `operations` needs a key: `Authorization: Bearer prk_…`. A key is for one tenant or for all; with \
one for all, the header `Postrider-Tenant` says which one is meant, `default` unless given, and `*` means all of them, for \
looking only. Somebody else's things are not there: 404.

Whatever goes wrong is told as a problem (RFC 9457) with a stable `code`. Lists are newest first; `next_cursor` of a page is the \
`cursor` of the next. Ids are TypeIDs. Instants are RFC 3339, durations are texts such as `30s` or `1h30m`.";

/// A problem that requests of some kind can have.
struct Common {
    status: StatusCode,
    name: &'static str,
    description: &'static str,
}

const fn common(status: StatusCode, name: &'static str, description: &'static str) -> Common {
    Common { status, name, description }
}

const MALFORMED: Common = common(
    StatusCode::BAD_REQUEST,
    "Malformed",
    "The query, the path or the body cannot be read: `query_invalid`, `id_invalid`, `path_invalid`, `body_not_json`, `body_empty`, …",
);
const UNAUTHORIZED: Common = common(
    StatusCode::UNAUTHORIZED,
    "Unauthorized",
    "There is no key (`key_missing`), or it opens nothing (`key_invalid`)",
);
const FORBIDDEN: Common = common(
    StatusCode::FORBIDDEN,
    "Forbidden",
    "The key's scope is too small (`scope_insufficient`), or it is for another tenant (`tenant_forbidden`)",
);
const NOT_FOUND: Common = common(StatusCode::NOT_FOUND, "NotFound", "There is no such thing");
const SLOW: Common = common(StatusCode::REQUEST_TIMEOUT, "Slow", "The body did not arrive in time (`body_timeout`)");
const TOO_LARGE: Common = common(
    StatusCode::PAYLOAD_TOO_LARGE,
    "TooLarge",
    "The body (`body_too_large`) or the payload (`payload_too_large`) is too large",
);
const UNSUPPORTED: Common = common(
    StatusCode::UNSUPPORTED_MEDIA_TYPE,
    "Unsupported",
    "The body is not `application/json` (`content_type_unsupported`)",
);
const REFUSED: Common = common(
    StatusCode::UNPROCESSABLE_ENTITY,
    "Refused",
    "Understood, but not acceptable; `errors` says what is wrong with which field",
);
const TOO_LONG: Common = common(StatusCode::URI_TOO_LONG, "TooLong", "Path and query are too long (`uri_too_long`)");
const HEADERS: Common = common(
    StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
    "HeadersTooLarge",
    "The headers are too many or too large (`headers_too_large`)",
);
const INTERNAL: Common = common(StatusCode::INTERNAL_SERVER_ERROR, "Internal", "Something went wrong in the server");
const UNAVAILABLE: Common = common(
    StatusCode::SERVICE_UNAVAILABLE,
    "Unavailable",
    "Not now: `overloaded`, `queue_full`, `request_timeout`, `store_unavailable`, `store_busy`, … Try again after `Retry-After`",
);

const ALWAYS: [Common; 4] = [TOO_LONG, HEADERS, INTERNAL, UNAVAILABLE];
const WITH_KEY: [Common; 4] = [MALFORMED, UNAUTHORIZED, FORBIDDEN, REFUSED];
const WITH_BODY: [Common; 3] = [SLOW, TOO_LARGE, UNSUPPORTED];

pub(super) fn complete(mut document: OpenApi) -> OpenApi {
    document.info = InfoBuilder::new()
        .title("Postrider")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(DESCRIPTION))
        .license(Some(LicenseBuilder::new().name("MIT OR Apache-2.0").identifier(Some("MIT OR Apache-2.0")).build()))
        .build();
    document.tags =
        Some(TAGS.map(|(name, text)| -> Tag { TagBuilder::new().name(name).description(Some(text)).build() }).into());
    document.security = Some(vec![SecurityRequirement::new(BEARER, [] as [&str; 0])]);
    for (path, item) in &mut document.paths.paths {
        for operation in operations(item) {
            complete_operation(path, operation);
        }
    }
    let asked = asked(&document);
    let components = document.components.get_or_insert_with(Components::new);
    let mut bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("prk_…").build();
    bearer.description = Some("An API key.".to_owned());
    components.add_security_scheme(BEARER, SecurityScheme::Http(bearer));
    for name in asked {
        if let Some(RefOr::T(Schema::Object(object))) = components.schemas.get_mut(&name)
            && object.additional_properties.is_none()
        {
            object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
        }
    }
    components.schemas.insert(Problem::name().into_owned(), Problem::schema());
    components.schemas.insert(FieldProblem::name().into_owned(), FieldProblem::schema());
    let all = ALWAYS.into_iter().chain(WITH_KEY).chain(WITH_BODY).chain([NOT_FOUND]);
    components.responses =
        all.map(|common| (common.name.to_owned(), RefOr::T(problem(&common)))).collect::<BTreeMap<_, _>>();
    document
}

pub(super) fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let methods = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch];
    methods.into_iter().filter_map(Option::as_mut)
}

fn complete_operation(path: &str, operation: &mut Operation) {
    // Handlers of different resources have the same short names.
    let tag = operation.tags.iter().flatten().next().cloned().unwrap_or_default();
    operation.operation_id = operation.operation_id.take().map(|id| format!("{tag}_{id}"));
    for parameter in operation.parameters.iter_mut().flatten() {
        if let RefOr::T(parameter) = parameter {
            complete_parameter(path, parameter);
        }
    }
    let mut commons: Vec<&Common> = ALWAYS.iter().collect();
    if tag == OPERATIONS {
        operation.security = Some(Vec::new());
    } else {
        commons.extend(&WITH_KEY);
        operation.parameters.get_or_insert_default().push(RefOr::T(tenant()));
    }
    if operation.request_body.is_some() {
        commons.extend(&WITH_BODY);
    }
    if path.contains('{') {
        commons.push(&NOT_FOUND);
    }
    let responses = &mut operation.responses.responses;
    for common in commons {
        let reference = RefOr::Ref(Ref::from_response_name(common.name));
        responses.entry(common.status.as_u16().to_string()).or_insert(reference);
    }
    for (status, response) in responses.iter_mut() {
        if let RefOr::T(response) = response {
            describe(status, response);
        }
    }
}

/// The schemas of which bodies of requests are made. Fields that they do not have are refused.
fn asked(document: &OpenApi) -> BTreeSet<String> {
    let document = serde_json::to_value(document).unwrap_or_default();
    let mut names = BTreeSet::new();
    let items = document["paths"].as_object().into_iter().flatten().map(|(_, item)| item);
    let mut waiting: Vec<&Value> =
        items.filter_map(Value::as_object).flatten().map(|(_, operation)| &operation["requestBody"]).collect();
    while let Some(value) = waiting.pop() {
        match value {
            Value::Array(values) => waiting.extend(values),
            Value::Object(values) => waiting.extend(values.values()),
            _ => {}
        }
        if let Some(name) = value["$ref"].as_str().and_then(|reference| reference.strip_prefix("#/components/schemas/"))
            && names.insert(name.to_owned())
        {
            waiting.push(&document["components"]["schemas"][name]);
        }
    }
    names
}

/// A parameter is there or not, but never null; and what is told of its schema is told of it.
fn complete_parameter(path: &str, parameter: &mut Parameter) {
    let Some(RefOr::T(Schema::Object(schema))) = &mut parameter.schema else { return };
    let pattern = match parameter.name.as_str() {
        "id" => IDS.iter().find(|(under, _)| path.starts_with(under)).map(|(_, prefix)| schemas::id_pattern(prefix)),
        "cursor" => Some(schemas::CURSOR.to_owned()),
        "subject" | "topic" | "Idempotency-Key" => Some(schemas::NAME.to_owned()),
        _ => None,
    };
    schema.pattern = schema.pattern.take().or(pattern);
    if let SchemaType::Array(types) = &schema.schema_type
        && let [one, Type::Null] = &types[..]
    {
        schema.schema_type = SchemaType::Type(one.clone());
    }
    if parameter.description.is_none() {
        let told = schema.description.take();
        parameter.description = told.or_else(|| Some(format!("Only those of this {}.", parameter.name)));
    }
}

fn tenant() -> Parameter {
    let name = ObjectBuilder::new().schema_type(Type::String).pattern(Some(schemas::NAME)).max_length(Some(255));
    ParameterBuilder::new()
        .name("Postrider-Tenant")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some("Which tenant is meant; with a key for all tenants only. `*` means all, for looking only."))
        .schema(Some(name))
        .build()
}

fn describe(status: &str, response: &mut Response) {
    if response.description.is_empty() {
        let reason = StatusCode::from_bytes(status.as_bytes()).ok().and_then(|status| status.canonical_reason());
        reason.unwrap_or("Answer").clone_into(&mut response.description);
    }
    if status == "503" {
        response.headers.entry("Retry-After".to_owned()).or_insert_with(|| RefOr::T(retry_after()));
    }
}

fn retry_after() -> utoipa::openapi::Header {
    let seconds = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1));
    HeaderBuilder::new().schema(Some(seconds)).description(Some("Seconds to wait")).build()
}

fn problem(common: &Common) -> Response {
    let code = common.description.split('`').nth(1).unwrap_or("internal");
    let example = serde_json::to_value(Problem::new(common.status.as_u16(), code, common.description)).ok();
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(Problem::name()))).example(example).build();
    let mut response =
        ResponseBuilder::new().description(common.description).content("application/problem+json", content).build();
    describe(common.status.as_str(), &mut response);
    response
}
