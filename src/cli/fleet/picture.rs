//! The picture of the fleet: of an agent, or of the place where hosts keep their reports.

use clap::Args;

use driftless_agent::{FleetReader, ReportError};
use driftless_config::{FleetPlace, PlaceKind};
use driftless_fleet::{FleetStatus, SourceStatus, merge};

use crate::cli::{
    client::{self, Client},
    context::Context,
    error::{CommandError, Error},
    options::ServerArgs,
};

/// The place that is asked.
#[derive(Debug, Args)]
pub(super) struct PictureArgs {
    /// Read the reports in this bucket or WebDAV folder, `s3://BUCKET/FOLDER` or `davs://HOST/FOLDER`, instead of asking an agent.
    ///
    /// Keys and passwords are those of the environment: `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY` or the file of Amazon's
    /// tools, with `AWS_REGION` and `AWS_ENDPOINT_URL_S3`; `WEBDAV_USER` and `WEBDAV_PASSWORD`.
    #[arg(long, value_name = "PLACE", value_parser = parse_place, conflicts_with = "server")]
    from: Option<FleetPlace>,
    #[command(flatten)]
    server: ServerArgs,
}

/// Asks one place again and again.
pub(super) enum Picture {
    Agent(Client),
    Place { reader: Box<FleetReader>, url: String },
}

/// A place that could not be read.
#[derive(Debug, thiserror::Error)]
#[error("could not read the reports at {url}")]
pub(super) struct Unread {
    url: String,
    #[source]
    source: ReportError,
}

impl CommandError for Unread {
    fn help(&self) -> Option<String> {
        Some("docs/fleet.md#without-a-server says how to name a bucket or folder and its keys".to_owned())
    }
}

fn parse_place(text: &str) -> Result<FleetPlace, String> {
    let place = FleetPlace::parse(text)?;
    match place.kind {
        PlaceKind::Bucket(_) | PlaceKind::Folder(_) => Ok(place),
        PlaceKind::Collector { .. } => Err(
            "an agent is named with --server; a bucket is `s3://BUCKET/FOLDER`, and a WebDAV folder `davs://HOST/FOLDER`"
                .to_owned(),
        ),
    }
}

impl Picture {
    pub(super) fn new(args: &PictureArgs, context: &Context<'_>) -> Result<Self, Error> {
        let Some(place) = &args.from else {
            return Ok(Self::Agent(Client::new(&args.server, context.environment)?));
        };
        let url = place.url.clone();
        match FleetReader::new(place, context.environment, context.clock) {
            Ok(reader) => Ok(Self::Place { reader: Box::new(reader), url }),
            Err(source) => Err(Unread { url, source }.into()),
        }
    }

    /// The place, for messages.
    pub(super) fn address(&self) -> String {
        match self {
            Self::Agent(client) => client.address(),
            Self::Place { url, .. } => url.clone(),
        }
    }

    pub(super) async fn look(&mut self, context: &Context<'_>) -> Result<FleetStatus, LookError> {
        let (reader, url) = match self {
            Self::Agent(client) => {
                return client.get("/api/v1/fleet/hosts").await.map_err(LookError::of_agent);
            }
            Self::Place { reader, url } => (reader, url),
        };
        let picture = reader.read().await.map_err(|source| LookError {
            is_passing: !source.is_lasting(),
            error: Unread { url: url.clone(), source }.into(),
        })?;
        let now = context.clock.now();
        let error = picture.error();
        let missing = picture.missing.unwrap_or_default();
        let source = SourceStatus { from: url.clone(), last_read: Some(now), error, missing };
        let hosts = merge(picture.hosts, &[]);
        Ok(FleetStatus { accepts: false, hosts, targets: Vec::new(), source: Some(source) })
    }
}

/// A picture that could not be had.
pub(super) struct LookError {
    /// The error.
    pub(super) error: Error,
    /// Whether the place may answer later.
    pub(super) is_passing: bool,
}

impl LookError {
    fn of_agent(error: client::Error) -> Self {
        Self { is_passing: error.is_absence(), error: error.into() }
    }
}

impl From<LookError> for Error {
    fn from(error: LookError) -> Self {
        error.error
    }
}
