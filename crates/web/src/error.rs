//! Errors as the API gives them: `{"error": {"code", "message", "help"}}` with a fitting status. It does not
//! pass on inner causes that a client can do nothing about; those go to the log.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{Method, StatusCode, Uri};
use serde::{Deserialize, Serialize};

use driftless_agent::RequestError;
use driftless_model::AppName;

/// The body of every answer that is an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    pub error: ErrorDetail,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// One word in camel case, for programs. It does not change between releases.
    pub code: String,
    /// What went wrong, for people.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

/// Why a request has no better answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    #[error("there is no application `{0}`")]
    NoSuchApplication(AppName),
    #[error("{0} has no instance `{1}`")]
    NoSuchInstance(AppName, String),
    #[error("there is nothing at `{0}`")]
    NoSuchRoute(String),
    #[error("`{0}` is not possible here")]
    NoSuchMethod(Method),
    /// It is well formed, and makes no sense as things stand.
    #[error("{0}")]
    Refused(String),
    #[error("the agent is shutting down")]
    Stopping,
    #[error("the agent did not answer in time")]
    TooSlow,
    #[error("a token is needed")]
    Unauthorized,
    #[error("{0}")]
    Forbidden(&'static str),
    #[error("the body has more than {} KiB", super::BODY_LIMIT / 1024)]
    BodyTooLarge,
    #[error("the body did not arrive in time")]
    BodyTooSlow,
    #[error("{0}")]
    Malformed(String),
    /// A delivery of a forge that is not taken.
    #[error("{1}")]
    Hook(StatusCode, String),
    /// The cause is in the log.
    #[error("could not read the database")]
    Database,
}

impl Error {
    fn status(&self) -> StatusCode {
        match self {
            Self::NoSuchApplication(_) | Self::NoSuchInstance(..) | Self::NoSuchRoute(_) => {
                StatusCode::NOT_FOUND
            }
            Self::NoSuchMethod(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::Refused(_) => StatusCode::CONFLICT,
            Self::Stopping => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooSlow => StatusCode::GATEWAY_TIMEOUT,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyTooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::Hook(status, _) => *status,
            Self::Database => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Hook(StatusCode::NOT_FOUND, _) => "noSuchHook",
            Self::NoSuchApplication(_) => "noSuchApplication",
            Self::NoSuchInstance(..) => "noSuchInstance",
            Self::NoSuchRoute(_) => "noSuchRoute",
            Self::NoSuchMethod(_) => "noSuchMethod",
            Self::Refused(_) | Self::Hook(..) => "refused",
            Self::Stopping => "stopping",
            Self::TooSlow => "tooSlow",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden(_) => "forbidden",
            Self::BodyTooLarge => "bodyTooLarge",
            Self::BodyTooSlow => "bodyTooSlow",
            Self::Malformed(_) => "malformed",
            Self::Database => "database",
        }
    }

    fn help(&self) -> Option<&'static str> {
        match self {
            Self::NoSuchApplication(_) => Some("GET /api/v1/applications lists those that there are"),
            Self::NoSuchInstance(..) => Some("GET /api/v1/objects?kind=pods lists those that there are"),
            Self::NoSuchRoute(_) => Some("the routes are in docs/api.md"),
            Self::NoSuchMethod(_) => {
                Some("reading is GET; sync, rollback, resume, suspend and adopt are POST")
            }
            Self::Stopping => Some("try again when the agent has been started anew"),
            Self::TooSlow => Some("it may still do it: look at the application's status"),
            Self::Unauthorized => Some(
                "send `Authorization: Bearer TOKEN`; a browser may give the token as password, with any user",
            ),
            Self::Forbidden(_) => {
                Some("give the agent a token (`--token-file`) to be reached by another name")
            }
            Self::Database => Some("the agent's log has the cause"),
            Self::Refused(_)
            | Self::BodyTooLarge
            | Self::BodyTooSlow
            | Self::Malformed(_)
            | Self::Hook(..) => None,
        }
    }
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::NoSuchApplication(app) => Self::NoSuchApplication(app),
            RequestError::Refused(why) => Self::Refused(why),
            RequestError::Stopping => Self::Stopping,
        }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let body = ErrorBody {
            error: ErrorDetail {
                code: self.code().to_owned(),
                message: self.to_string(),
                help: self.help().map(str::to_owned),
            },
        };
        (self.status(), Json(body)).into_response()
    }
}

pub(super) async fn no_such_route(uri: Uri) -> Error {
    Error::NoSuchRoute(uri.path().to_owned())
}

pub(super) async fn no_such_method(method: Method) -> Error {
    Error::NoSuchMethod(method)
}
