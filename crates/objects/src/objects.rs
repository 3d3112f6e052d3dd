//! The client for one bucket or folder.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use driftless_clock::Clock;
use driftless_config::{FleetPlace, PlaceKind};
use driftless_model::Timestamp;
use driftless_trust::{Trust, read_certificates};
use reqwest::{Client, Method, StatusCode, header};

use crate::{
    answer::Answer,
    bucket::{BucketRequest, BucketRequests},
    credentials::SecretSource,
    error::Error,
    folder::FolderRequests,
    listed::Listed,
    sign::escaped,
    xml,
};

const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// The time for the whole answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// The largest page of a list, in bytes.
const LARGEST_LIST: usize = 8 << 20;

/// The most pages of a list. A server gives 1000 objects in each.
const MOST_PAGES: usize = 10;

/// A clock that is off by more is corrected in signatures, in milliseconds. Servers accept up to 15 minutes.
const LARGEST_SKEW: i64 = 60_000;

/// An object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its content.
    pub body: Vec<u8>,
    /// Its version, for a condition.
    pub tag: Option<String>,
    /// When it was written, by the clock of the server.
    pub modified: Option<Timestamp>,
    /// The time of the server when it answered.
    pub now: Option<Timestamp>,
}

/// The objects of a bucket or folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// In the order of the server.
    pub objects: Vec<Listed>,
    /// The time of the server when it answered.
    pub now: Option<Timestamp>,
}

/// The condition under which an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition<'a> {
    /// There is none of this name.
    Absent,
    /// It has this version.
    Version(&'a str),
    /// None.
    Always,
}

/// The result of writing an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is written. With its version, if the server names it.
    Done(Option<String>),
    /// The condition is not met: somebody else has written it.
    Changed,
}

/// A bucket or folder. Not every server knows conditions: those that do not write in any case.
pub struct Objects {
    client: Client,
    server: Server,
    secrets: SecretSource,
    clock: Clock,
    /// The server's time minus ours, in milliseconds, if that is much.
    skew: AtomicI64,
}

enum Server {
    Bucket(Box<BucketRequests>),
    Folder(FolderRequests),
}

/// The parts of a request.
struct Wanted<'a> {
    method: Method,
    /// The name of the object. Empty: the bucket.
    name: &'a str,
    query: &'a str,
    headers: &'a [(header::HeaderName, &'a str)],
    body: &'a [u8],
    /// The most bytes of the answer.
    most: usize,
}

impl Objects {
    /// The bucket or folder of a place. `None`: the place is another agent. Asks no server.
    ///
    /// # Errors
    /// If its URL or its file of authorities cannot be used.
    pub fn open(place: &FleetPlace, secrets: SecretSource, clock: Clock) -> Result<Option<Self>, Error> {
        let server = match &place.kind {
            PlaceKind::Collector { .. } => return Ok(None),
            PlaceKind::Bucket(bucket) => Server::Bucket(Box::new(BucketRequests::new(bucket, &secrets)?)),
            PlaceKind::Folder(folder) => Server::Folder(FolderRequests(folder.clone())),
        };
        let mut builder = Client::builder()
            .connect_timeout(CONNECT_WITHIN)
            .timeout(ANSWER_WITHIN)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("driftless/", env!("CARGO_PKG_VERSION")));
        // Plain http needs no certificates, and a small machine may have none.
        let is_plain = match &server {
            Server::Bucket(bucket) => bucket.is_plain(),
            Server::Folder(folder) => folder.is_plain(),
        };
        if is_plain {
            builder = builder.tls_certs_only([]);
        } else if let Some(path) = place.ca_file.as_deref() {
            let trusted = Trust::GivenOnly.client_config(read_certificates(path)?);
            builder = builder.tls_backend_preconfigured(trusted.map_err(Error::Client)?);
        }
        let client = builder.build().map_err(|error| Error::Client(error.to_string()))?;
        Ok(Some(Self { client, server, secrets, clock, skew: AtomicI64::new(0) }))
    }

    /// An object of at most `most` bytes. `None`: there is none of this name. See [`Error::is_forbidden`] about keys that may not list.
    pub async fn get(&self, name: &str, most: usize) -> Result<Option<Object>, Error> {
        let wanted = Wanted { method: Method::GET, name, query: "", headers: &[], body: &[], most };
        let answer = self.ask(&wanted).await?;
        match answer.status {
            StatusCode::OK => {
                let Answer { body, tag, modified, now, status: _ } = answer;
                Ok(Some(Object { body, tag, modified, now }))
            }
            StatusCode::NOT_FOUND if !is_missing_bucket(&answer) => Ok(None),
            _ => Err(answer.refusal()),
        }
    }

    /// Writes an object. Makes the folder if it is missing; a bucket must be there.
    pub async fn put(&self, name: &str, body: &[u8], condition: Condition<'_>) -> Result<Written, Error> {
        let answer = self.put_once(name, body, condition).await?;
        let is_folder = matches!(self.server, Server::Folder(_));
        let answer = match answer.status {
            // As WebDAV says that the folder is missing.
            StatusCode::CONFLICT | StatusCode::NOT_FOUND if is_folder => {
                self.create_folder().await?;
                self.put_once(name, body, condition).await?
            }
            // A server that does not know the condition.
            StatusCode::NOT_IMPLEMENTED if condition != Condition::Always => {
                self.put_once(name, body, Condition::Always).await?
            }
            _ => answer,
        };
        match answer.status {
            status if status.is_success() => Ok(Written::Done(answer.tag)),
            StatusCode::PRECONDITION_FAILED => Ok(Written::Changed),
            // Two at the same time, and an object that was removed.
            StatusCode::CONFLICT if !is_folder => Ok(Written::Changed),
            StatusCode::NOT_FOUND
                if matches!(condition, Condition::Version(_)) && !is_missing_bucket(&answer) =>
            {
                Ok(Written::Changed)
            }
            _ => Err(answer.refusal()),
        }
    }

    /// Removes an object, if there is one.
    pub async fn remove(&self, name: &str) -> Result<(), Error> {
        let wanted = Wanted { method: Method::DELETE, name, query: "", headers: &[], body: &[], most: 1024 };
        let answer = self.ask(&wanted).await?;
        let is_gone = answer.status == StatusCode::NOT_FOUND && !is_missing_bucket(&answer);
        if answer.status.is_success() || is_gone { Ok(()) } else { Err(answer.refusal()) }
    }

    /// All objects of the folder, without those of folders in it.
    pub async fn list(&self) -> Result<Listing, Error> {
        match &self.server {
            Server::Bucket(bucket) => self.list_bucket(&bucket.prefix).await,
            Server::Folder(folder) => {
                let answer = Answer::of(folder.list(&self.client, &self.secrets)?, LARGEST_LIST).await?;
                match answer.status {
                    StatusCode::MULTI_STATUS => {
                        let objects = xml::folder_list(&String::from_utf8_lossy(&answer.body))?;
                        Ok(Listing { objects, now: answer.now })
                    }
                    // No host has reported yet.
                    StatusCode::NOT_FOUND => Ok(Listing { objects: Vec::new(), now: answer.now }),
                    StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => {
                        Err(Error::Foreign(format!("{}: it does not list folders (PROPFIND)", answer.status)))
                    }
                    _ => Err(answer.refusal()),
                }
            }
        }
    }

    async fn list_bucket(&self, prefix: &str) -> Result<Listing, Error> {
        let mut listing = Listing { objects: Vec::new(), now: None };
        let mut next: Option<String> = None;
        for _ in 0..MOST_PAGES {
            let token =
                next.map(|token| format!("continuation-token={}&", escaped(&token))).unwrap_or_default();
            let query = format!("{token}delimiter=%2F&list-type=2&prefix={}", escaped(prefix));
            let wanted = Wanted {
                method: Method::GET,
                name: "",
                query: &query,
                headers: &[],
                body: &[],
                most: LARGEST_LIST,
            };
            let answer = self.ask(&wanted).await?;
            if answer.status != StatusCode::OK {
                return Err(answer.refusal());
            }
            let page = xml::bucket_page(&String::from_utf8_lossy(&answer.body), prefix)?;
            listing.objects.extend(page.objects);
            // The first answer is the oldest one, so that nothing seems younger than it is.
            listing.now = listing.now.or(answer.now);
            next = page.next;
            if next.is_none() {
                return Ok(listing);
            }
        }
        Err(Error::Foreign(format!("the list has more than {MOST_PAGES} pages")))
    }

    async fn put_once(&self, name: &str, body: &[u8], condition: Condition<'_>) -> Result<Answer, Error> {
        let conditions = match condition {
            Condition::Absent => vec![(header::IF_NONE_MATCH, "*")],
            Condition::Version(tag) => vec![(header::IF_MATCH, tag)],
            Condition::Always => Vec::new(),
        };
        let wanted =
            Wanted { method: Method::PUT, name, query: "", headers: &conditions, body, most: LARGEST_LIST };
        self.ask(&wanted).await
    }

    async fn create_folder(&self) -> Result<(), Error> {
        let Server::Folder(folder) = &self.server else { return Ok(()) };
        let answer = Answer::of(folder.create(&self.client, &self.secrets)?, LARGEST_LIST).await?;
        // 405: there is one.
        match answer.status {
            status if status.is_success() || status == StatusCode::METHOD_NOT_ALLOWED => Ok(()),
            _ => Err(answer.refusal()),
        }
    }

    /// Sends a request. One that is refused because of our clock is sent once more, with the server's time.
    async fn ask(&self, wanted: &Wanted<'_>) -> Result<Answer, Error> {
        let before = self.skew.load(Ordering::Relaxed);
        let answer = self.ask_once(wanted, before).await?;
        let Some(now) = answer.now else { return Ok(answer) };
        let skew = signed(now).saturating_sub(signed(self.clock.now()));
        let skew = if skew.abs() > LARGEST_SKEW { skew } else { 0 };
        self.skew.store(skew, Ordering::Relaxed);
        let is_wrong = (skew - before).abs() > LARGEST_SKEW;
        if answer.status == StatusCode::FORBIDDEN && is_wrong {
            return self.ask_once(wanted, skew).await;
        }
        Ok(answer)
    }

    async fn ask_once(&self, wanted: &Wanted<'_>, skew: i64) -> Result<Answer, Error> {
        let Wanted { method, name, query, headers, body, most } = wanted;
        let mut request = match &self.server {
            Server::Bucket(bucket) => {
                let key = if name.is_empty() { String::new() } else { format!("{}{name}", bucket.prefix) };
                let at = Timestamp(self.clock.now().0.saturating_add_signed(skew));
                let request =
                    BucketRequest { method: method.clone(), key: &key, query, body: body.to_vec(), at };
                bucket.request(&self.client, request, &bucket.keys(&self.secrets)?)
            }
            Server::Folder(folder) => {
                folder.request(&self.client, method.clone(), name, &self.secrets)?.body(body.to_vec())
            }
        };
        for (header, value) in *headers {
            request = request.header(header, *value);
        }
        Answer::of(request, *most).await
    }
}

fn signed(at: Timestamp) -> i64 {
    i64::try_from(at.0).unwrap_or(i64::MAX)
}

/// Whether a 404 is about the bucket, and not about an object in it.
fn is_missing_bucket(answer: &Answer) -> bool {
    let words = xml::error_message(&String::from_utf8_lossy(&answer.body));
    words.is_some_and(|words| words.starts_with("NoSuchBucket"))
}
