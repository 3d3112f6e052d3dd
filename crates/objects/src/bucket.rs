//! Requests to a bucket of S3.

use driftless_config::FleetBucket;
use driftless_model::Timestamp;
use reqwest::{Client, Method, RequestBuilder, Url};

use crate::{
    credentials::{BucketKeys, SecretSource},
    error::Error,
    sign::{Signed, headers},
};

/// A bucket with its server.
pub(crate) struct BucketRequests {
    /// Without a slash at the end.
    base: Url,
    host: String,
    /// The path of the bucket, without a slash at the end.
    path: String,
    region: String,
    /// With a slash at the end, or empty.
    pub(crate) prefix: String,
    bucket: FleetBucket,
}

/// The parts of a request to a bucket.
pub(crate) struct BucketRequest<'a> {
    pub(crate) method: Method,
    /// The name of the object with the prefix. Empty: the bucket.
    pub(crate) key: &'a str,
    /// Escaped, sorted by name.
    pub(crate) query: &'a str,
    pub(crate) body: Vec<u8>,
    pub(crate) at: Timestamp,
}

impl BucketRequests {
    /// With Amazon's server the bucket is part of the name of the host, and elsewhere of the path.
    pub(crate) fn new(bucket: &FleetBucket, secrets: &SecretSource) -> Result<Self, Error> {
        let variable = |name: &str| secrets.variable(name);
        let region = bucket
            .region
            .clone()
            .or_else(|| variable("AWS_REGION"))
            .or_else(|| variable("AWS_DEFAULT_REGION"))
            .unwrap_or_else(|| "us-east-1".to_owned());
        let endpoint = bucket
            .endpoint
            .clone()
            .or_else(|| variable("AWS_ENDPOINT_URL_S3"))
            .or_else(|| variable("AWS_ENDPOINT_URL"));
        let name = &bucket.name;
        let (base, path) = match endpoint {
            Some(endpoint) => (endpoint.trim_end_matches('/').to_owned(), format!("/{name}")),
            // A certificate of one star covers no name with dots.
            None if name.contains('.') => (format!("https://s3.{region}.amazonaws.com"), format!("/{name}")),
            None => (format!("https://{name}.s3.{region}.amazonaws.com"), String::new()),
        };
        let base = Url::parse(&base).ok().filter(Url::has_host).ok_or(Error::Url(base))?;
        let server = base.host_str().unwrap_or_default();
        let host = base.port().map_or_else(|| server.to_owned(), |port| format!("{server}:{port}"));
        let path = format!("{}{path}", base.path().trim_end_matches('/'));
        let prefix = if bucket.prefix.is_empty() { String::new() } else { format!("{}/", bucket.prefix) };
        Ok(Self { base, host, path, region, prefix, bucket: bucket.clone() })
    }

    /// Whether the server is asked without TLS.
    pub(crate) fn is_plain(&self) -> bool {
        self.base.scheme() == "http"
    }

    /// The keys at this moment.
    pub(crate) fn keys(&self, secrets: &SecretSource) -> Result<BucketKeys, Error> {
        secrets.bucket_keys(&self.bucket)
    }

    /// A signed request.
    pub(crate) fn request(
        &self,
        client: &Client,
        request: BucketRequest<'_>,
        keys: &BucketKeys,
    ) -> RequestBuilder {
        let BucketRequest { method, key, query, body, at } = request;
        let path = format!("{}/{key}", self.path);
        let signed = Signed {
            method: method.as_str(),
            host: &self.host,
            path: &path,
            query,
            headers: &[],
            body: &body,
            region: &self.region,
            at,
        };
        let headers = headers(&signed, keys);
        let mut url = self.base.clone();
        url.set_path(&path);
        url.set_query(Some(query).filter(|query| !query.is_empty()));
        let mut builder = client.request(method, url).body(body);
        for (name, value) in headers {
            builder = builder.header(name, value);
        }
        builder
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn address(bucket: &FleetBucket, variables: &'static [(&'static str, &'static str)]) -> String {
        let find =
            |name: &str| variables.iter().find(|(it, _)| *it == name).map(|(_, value)| (*value).to_owned());
        let secrets = SecretSource { environment: Arc::new(find), read: |_, _| Err(String::new()) };
        let requests = BucketRequests::new(bucket, &secrets).unwrap();
        let keys = BucketKeys { id: "A".to_owned(), secret: "s".to_owned(), session: None };
        let request = BucketRequest {
            method: Method::GET,
            key: "prod/nas.json.gz",
            query: "",
            body: Vec::new(),
            at: Timestamp(0),
        };
        let built = requests.request(&Client::new(), request, &keys).build().unwrap();
        format!("{} {}", requests.host, built.url())
    }

    #[test]
    fn address_of_a_bucket_follows_its_server() {
        let named = |name: &str| FleetBucket { name: name.to_owned(), ..FleetBucket::default() };
        let amazon = "fleet.s3.eu-central-1.amazonaws.com https://fleet.s3.eu-central-1.amazonaws.com/prod/nas.json.gz";
        assert_eq!(address(&named("fleet"), &[("AWS_REGION", "eu-central-1")]), amazon);
        let dotted = "s3.us-east-1.amazonaws.com https://s3.us-east-1.amazonaws.com/a.b/prod/nas.json.gz";
        assert_eq!(address(&named("a.b"), &[]), dotted);
        let own = "minio:9000 http://minio:9000/fleet/prod/nas.json.gz";
        assert_eq!(address(&named("fleet"), &[("AWS_ENDPOINT_URL_S3", "http://minio:9000/")]), own);
        let endpoint = Some("https://s3.example.com/root".to_owned());
        let set = FleetBucket { endpoint, ..named("fleet") };
        let below = "s3.example.com https://s3.example.com/root/fleet/prod/nas.json.gz";
        assert_eq!(address(&set, &[("AWS_ENDPOINT_URL_S3", "http://minio:9000")]), below);
    }
}
