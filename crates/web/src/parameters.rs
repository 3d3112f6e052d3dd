//! The parameters in the URL of a request to the API. An error has the form of all errors.

use axum::extract::{FromRequestParts, Query};
use http::request::Parts;
use serde::de::DeserializeOwned;

use super::error::Error;

/// The parameters of a route.
pub(super) struct Parameters<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Parameters<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
        let query = Query::from_request_parts(parts, state).await;
        let Query(parameters) = query.map_err(|error| Error::Malformed(error.body_text()))?;
        Ok(Self(parameters))
    }
}
