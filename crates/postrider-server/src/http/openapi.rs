//! The API's description. Handlers tell what is their own; what all have in common is added here.

use utoipa::openapi::OpenApi;

pub(super) fn complete(document: OpenApi) -> OpenApi {
    document
}
