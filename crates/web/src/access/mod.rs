//! Access control: who sends a request, what this actor may do, and the audit of everything that changes something.
//!
//! Without a token, programs of this machine are answered, and no web page of another origin; only root and the agent's
//! own user may act and read logs. With a token, every client that sends it, as `Bearer` or as the password of HTTP Basic;
//! a browser may exchange it for a cookie. A trusted proxy may say in a header which person sends a request, and people may log
//! in with an OpenID provider.

pub(super) mod audit;
mod credentials;
mod ended_sessions;
mod identify;
mod origin;
mod permission;
mod provider_login;
pub(super) mod session;
mod settings;
mod signed_host;
mod token;
pub(super) mod tokens;

pub(super) use identify::{Authenticator, Caller, Credential, Identity};
pub(super) use origin::{foreign_refusal, is_cross_site, is_same_origin, names_loopback};
pub(super) use permission::{Needed, Needs, RouteRule, RouteRules};
pub(super) use provider_login::{ProviderLogin, remove_attempt};
pub use settings::Access;
pub(super) use signed_host::{HostRefusal, only_text};
pub(super) use token::CONFIGURED_TOKEN;
pub use token::{Token, TokenError};
