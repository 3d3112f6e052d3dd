//! The parameters in the URL of a page. An error has the frame of all pages.

use axum::extract::{FromRequestParts, Query};
use http::request::Parts;
use serde::de::DeserializeOwned;

use super::failure::PageError;
use crate::{access::Identity, error::Error, shared::Shared};

/// The parameters of a page.
pub(crate) struct PageParameters<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Shared> for PageParameters<T> {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Self, PageError> {
        let query = Query::from_request_parts(parts, shared).await;
        let query = query.map_err(|error| Error::Malformed(error.body_text()));
        query.map(|Query(parameters)| Self(parameters)).map_err(|error| {
            match parts.extensions.get::<Identity>() {
                Some(identity) => PageError::new(identity, shared, parts.uri.path(), error),
                // Nobody has logged in yet.
                None => error.into(),
            }
        })
    }
}
