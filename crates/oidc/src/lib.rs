//! Logs people in with an OpenID provider: the code flow with PKCE, and the check of the identity token.
//!
//! [`Provider::begin`] makes the URL that a browser is sent to, and [`Provider::finish`] exchanges the code that it comes back
//! with. [`Provider::log_out`] makes the URL that ends the session at the provider. Nothing is stored between the requests: everything that must not be guessed follows from the secret of [`Attempt`].
//!
//! Rules: OpenID Connect Core 1.0, OpenID Connect Discovery 1.0, OpenID Connect RP-Initiated Logout 1.0, RFC 7636 (PKCE),
//! RFC 9207 (`iss` in the answer).
//!
//! ```
//! use driftless_oidc::Attempt;
//!
//! let attempt = Attempt::new(b"a secret of this log-in");
//! assert!(attempt.has_state(attempt.state()));
//! assert!(!Attempt::new(b"another one").has_state(attempt.state()));
//! ```

mod attempt;
mod client;
mod error;
mod identity;
mod person;
mod provider;

pub use attempt::Attempt;
pub use error::Error;
pub use person::Person;
pub use provider::{Answer, IdToken, LoggedIn, Provider, ReadSecret};
