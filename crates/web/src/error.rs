//! Errors of the API: `{"error": {"code", "message", "help"}}` with an HTTP status. Internal causes go to the log,
//! not to the client.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{Method, StatusCode, Uri, header};
use serde::{Deserialize, Serialize};

use super::limits::BODY_LIMIT;
use driftless_agent::RequestError;
use driftless_model::AppName;

/// The body of every error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    pub error: ErrorDetail,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// A word in camel case for programs. It is stable between releases.
    pub code: String,
    /// The error, for people.
    pub message: String,
    /// The next step, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    #[error("there is no application `{0}`")]
    NoSuchApplication(AppName),
    #[error("the agent has just started or found `{0}` in Git, and has not looked at it yet")]
    Starting(AppName),
    #[error("this agent follows no repository `{0}`")]
    NoSuchRepository(String),
    #[error("{0} has no instance `{1}`")]
    NoSuchInstance(AppName, String),
    #[error("there is no receiver `{0}` of notifications")]
    NoSuchReceiver(String),
    #[error("there is no host `{0}` in the fleet")]
    NoSuchHost(String),
    #[error("this agent accepts no reports of other hosts")]
    NoCollector,
    /// The answer to a heartbeat about a report that the collector does not have.
    #[error("the whole report is needed")]
    ReportNeeded,
    /// The host is not enrolled with the key that it signs with, or must be enrolled.
    #[error("{0}")]
    NotEnrolled(String),
    /// The counter of a signed request is not higher than the last one.
    #[error(
        "the counter of this request is not higher than the last one of `{0}`: if two machines are copies of one disk, remove the state directory of one and join it with another name; if the copy is gone, restart the agent"
    )]
    Replayed(String),
    #[error("no key of a host `{0}` is enrolled, and no invite for it is open")]
    NoSuchKey(String),
    #[error("there is no open invite `{0}`")]
    NoSuchInvite(String),
    #[error("there is no request `{0}` without a result")]
    NoSuchRequest(String),
    /// A collector did not answer, or refused.
    #[error("{0}")]
    Collector(String),
    #[error("the report has more than {0} KiB")]
    ReportTooLarge(u64),
    #[error("the report has more than {0} KiB as it is sent")]
    SentReportTooLarge(usize),
    /// The collector has no room for the report.
    #[error("{0}")]
    FleetFull(String),
    #[error("there is no route `{0}`")]
    NoSuchRoute(String),
    #[error("this route does not accept {0}")]
    NoSuchMethod(Method),
    /// As when somebody opens the address of a webhook in a browser.
    #[error("this is the address of a webhook, which does not accept {0}")]
    NoDelivery(Method),
    /// The request is well formed and not possible in the current state.
    #[error("{0}")]
    Refused(String),
    /// The application has many requests to answer.
    #[error("{0}")]
    Busy(String),
    /// The engine did not answer, or answered with an error.
    #[error("{0}")]
    Engine(String),
    /// The OpenID provider did not answer, or not as it must.
    #[error("{0}")]
    Provider(String),
    /// The agent's state directory failed.
    #[error("{0}")]
    State(String),
    #[error("the agent is shutting down")]
    Stopping,
    /// A panic. The cause is in the log.
    #[error("a defect of the agent ended this request")]
    Defect,
    #[error("the agent did not answer in time")]
    TooSlow,
    #[error("this request needs a token")]
    Unauthorized,
    #[error("this token is not known here: it is wrong or was revoked")]
    WrongToken,
    #[error("the token {0} has expired")]
    Expired(String),
    #[error("too many wrong tokens or signatures from this address: try again in {seconds} s")]
    TooMany { seconds: u64 },
    #[error("there is no token `{0}`")]
    NoSuchToken(String),
    #[error("{0}")]
    Forbidden(String),
    /// A page of another site, or a reverse proxy that changes `Host`.
    #[error("the browser says that the page is at {origin}, and the request came for the host `{host}`")]
    OtherHost { origin: String, host: String },
    #[error("the body has more than {} KiB", BODY_LIMIT / 1024)]
    BodyTooLarge,
    #[error("the body did not arrive in time")]
    BodyTooSlow,
    #[error("{0}")]
    Malformed(String),
    /// A refused webhook delivery.
    #[error("{1}")]
    Hook(StatusCode, String),
    /// The cause is in the log.
    #[error("could not read the database")]
    Database,
}

impl Error {
    fn status(&self) -> StatusCode {
        match self {
            Self::NoSuchApplication(_)
            | Self::NoSuchRepository(_)
            | Self::NoSuchInstance(..)
            | Self::NoSuchReceiver(_)
            | Self::NoSuchHost(_)
            | Self::NoCollector
            | Self::NoSuchKey(_)
            | Self::NoSuchInvite(_)
            | Self::NoSuchRequest(_)
            | Self::NoSuchRoute(_)
            | Self::NoSuchToken(_) => StatusCode::NOT_FOUND,
            Self::ReportNeeded => StatusCode::PRECONDITION_REQUIRED,
            Self::TooMany { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::NoSuchMethod(_) | Self::NoDelivery(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::Refused(_) | Self::Replayed(_) => StatusCode::CONFLICT,
            Self::Starting(_) | Self::Stopping | Self::Busy(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Engine(_) | Self::Provider(_) | Self::Collector(_) => StatusCode::BAD_GATEWAY,
            Self::TooSlow => StatusCode::GATEWAY_TIMEOUT,
            Self::Unauthorized | Self::WrongToken | Self::Expired(_) => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) | Self::OtherHost { .. } | Self::NotEnrolled(_) => StatusCode::FORBIDDEN,
            Self::BodyTooLarge | Self::ReportTooLarge(_) | Self::SentReportTooLarge(_) => {
                StatusCode::PAYLOAD_TOO_LARGE
            }
            Self::FleetFull(_) => StatusCode::INSUFFICIENT_STORAGE,
            Self::BodyTooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::Hook(status, _) => *status,
            Self::Database | Self::State(_) | Self::Defect => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Hook(StatusCode::NOT_FOUND, _) => "noSuchHook",
            Self::NoSuchApplication(_) => "noSuchApplication",
            Self::NoSuchRepository(_) => "noSuchRepository",
            Self::NoSuchInstance(..) => "noSuchInstance",
            Self::NoSuchReceiver(_) => "noSuchReceiver",
            Self::NoSuchHost(_) => "noSuchHost",
            Self::NoCollector => "noCollector",
            Self::ReportNeeded => "reportNeeded",
            Self::NotEnrolled(_) => "notEnrolled",
            Self::Replayed(_) => "replayed",
            Self::NoSuchKey(_) => "noSuchKey",
            Self::NoSuchInvite(_) => "noSuchInvite",
            Self::NoSuchRequest(_) => "noSuchRequest",
            Self::Collector(_) => "collector",
            Self::FleetFull(_) => "fleetFull",
            Self::NoSuchRoute(_) => "noSuchRoute",
            Self::NoSuchMethod(_) | Self::NoDelivery(_) => "noSuchMethod",
            Self::Refused(_) | Self::Hook(..) => "refused",
            Self::Starting(_) => "starting",
            Self::Stopping => "stopping",
            Self::Defect => "defect",
            Self::Busy(_) => "busy",
            Self::Engine(_) => "engine",
            Self::Provider(_) => "provider",
            Self::State(_) => "stateDirectory",
            Self::TooSlow => "tooSlow",
            Self::Unauthorized | Self::WrongToken => "unauthorized",
            Self::Expired(_) => "tokenExpired",
            Self::TooMany { .. } => "tooManyFailures",
            Self::NoSuchToken(_) => "noSuchToken",
            Self::Forbidden(_) | Self::OtherHost { .. } => "forbidden",
            Self::BodyTooLarge | Self::ReportTooLarge(_) | Self::SentReportTooLarge(_) => "bodyTooLarge",
            Self::BodyTooSlow => "bodyTooSlow",
            Self::Malformed(_) => "malformed",
            Self::Database => "database",
        }
    }

    fn help(&self) -> Option<&'static str> {
        match self {
            Self::NoSuchApplication(_) => Some("GET /api/v1/applications lists the applications"),
            Self::NoSuchRepository(_) => Some("GET /api/v1/repositories lists the repositories"),
            Self::NoSuchInstance(..) => Some("GET /api/v1/objects?kind=pods lists the instances"),
            Self::NoSuchReceiver(_) => Some("GET /api/v1/notifications lists the receivers"),
            Self::NoSuchHost(_) => Some("GET /api/v1/fleet/hosts lists the hosts"),
            Self::NoCollector => {
                Some("`fleet: {accept: true}` in its configuration makes it a collector: docs/fleet.md")
            }
            Self::NotEnrolled(_) | Self::Replayed(_) => Some("docs/fleet.md says how hosts join"),
            Self::NoSuchKey(_) => Some("GET /api/v1/fleet/keys lists the keys"),
            Self::NoSuchInvite(_) => Some("GET /api/v1/fleet/keys lists the invites"),
            Self::NoSuchRequest(_) => Some("GET /api/v1/fleet/requests lists the requests"),
            Self::ReportNeeded => Some("send the report without `If-None-Match`"),
            Self::FleetFull(_) => Some("remove hosts there with `driftless fleet remove HOST`"),
            Self::NoSuchRoute(_) => Some("docs/api.md lists the routes"),
            Self::NoSuchMethod(_) => {
                Some("use GET to read, and POST for sync, rollback, resume, suspend and adopt")
            }
            Self::NoDelivery(_) => {
                Some("forges post their deliveries here; `driftless webhook test REPOSITORY` posts a sample")
            }
            Self::Starting(_) => Some("try again in a moment"),
            Self::Stopping => Some("try again when the agent runs again"),
            Self::Defect => Some(
                "the agent may have done it: check the application's status; the cause is in the agent's log: please report it",
            ),
            Self::TooSlow => Some("the agent may still do it: check the application's status"),
            Self::Unauthorized => Some(
                "send `Authorization: Bearer TOKEN`, or in a browser the token as password with any user name",
            ),
            Self::Forbidden(_) => {
                Some("docs/access.md says who may do what; `driftless token create` makes a token")
            }
            Self::OtherHost { .. } => Some(
                "a reverse proxy in front of the agent must pass on the header `Host`, in nginx with `proxy_set_header Host $http_host;`: \
                 docs/access.md#behind-a-reverse-proxy",
            ),
            Self::WrongToken | Self::Expired(_) => Some("`driftless token create` makes another one"),
            Self::NoSuchToken(_) => Some("GET /api/v1/tokens lists the tokens"),
            Self::Database => Some("the agent's log has the cause"),
            Self::Provider(_) => Some("`driftless doctor` checks the provider"),
            Self::State(_) => Some("check the free space and the permissions of the state directory"),
            Self::TooMany { .. }
            | Self::Refused(_)
            | Self::Busy(_)
            | Self::Engine(_)
            | Self::Collector(_)
            | Self::BodyTooLarge
            | Self::ReportTooLarge(_)
            | Self::SentReportTooLarge(_)
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
            RequestError::Starting(app) => Self::Starting(app),
            RequestError::Refused(why) => Self::Refused(why),
            RequestError::Busy(_) | RequestError::Interrupted(_) => Self::Busy(error.to_string()),
            RequestError::Engine(why) => Self::Engine(why),
            RequestError::State(_) => Self::State(error.to_string()),
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
        let mut response = (self.status(), Json(&body)).into_response();
        if let Self::TooMany { seconds } = self {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        // For the audit.
        response.extensions_mut().insert(body.error);
        response
    }
}

pub(super) async fn no_such_route(uri: Uri) -> Error {
    Error::NoSuchRoute(uri.path().to_owned())
}

pub(super) async fn no_such_method(method: Method) -> Error {
    Error::NoSuchMethod(method)
}

pub(super) async fn no_delivery(method: Method) -> Error {
    Error::NoDelivery(method)
}
