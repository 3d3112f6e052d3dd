//! The routes about images: what each one is kept for, and the clean-up.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};

use super::{error::Error, shared::Shared};

/// All images of the engine. Nothing is removed.
pub(super) async fn list(State(shared): State<Shared>) -> Result<Response, Error> {
    let images = shared.handle.images().ok_or(Error::Stopping)?;
    let uses = images.uses(shared.handle.image_retention()).await.map_err(Error::Engine)?;
    Ok(Json(uses).into_response())
}

/// Removes the images that nothing keeps.
pub(super) async fn clean_up(State(shared): State<Shared>) -> Result<Response, Error> {
    let images = shared.handle.images().ok_or(Error::Stopping)?;
    let cleanup = images.clean_up(shared.handle.image_retention(), None).await.map_err(Error::Engine)?;
    Ok(Json(cleanup).into_response())
}
