//! The fields that are read from each forge's payload.
//!
//! Every field is optional, texts are limited, nesting is limited by the parser, and other fields are skipped.

use http::{HeaderMap, header::CONTENT_TYPE};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error, Visitor},
};

use super::{
    headers::header,
    notice::{EventKind, Moved, Notice},
    origin::Origin,
};
use driftless_model::{CommitId, ImageRef, WebhookProvider, is_unprintable};

/// The longest text that is read from a payload, in bytes.
const LONGEST_TEXT: usize = 2048;

/// The most images of one payload.
const MOST_IMAGES: usize = 100;

/// Why an authentic payload cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("the payload is not JSON: choose `application/json` as the content type of the webhook")]
    ContentType,
    #[error("the header `{0}`, which names the event, is missing")]
    NoEvent(&'static str),
    #[error("the payload cannot be read: {0}")]
    Json(String),
}

/// Reads a verified payload. The second value is the forge's id of the delivery.
pub fn read(
    provider: WebhookProvider,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<(Notice, Option<String>), Malformed> {
    let event = |name: &'static str| header(headers, name).map(str::to_owned).ok_or(Malformed::NoEvent(name));
    let id = |name: &str| header(headers, name).filter(|it| is_id(it)).map(str::to_owned);
    let notice = match provider {
        WebhookProvider::Auto | WebhookProvider::GitHub => forge(event("x-github-event")?, headers, body)?,
        WebhookProvider::Gitea => forge(event("x-gitea-event")?, headers, body)?,
        WebhookProvider::Forgejo => forge(event("x-forgejo-event")?, headers, body)?,
        WebhookProvider::Gogs => forge(event("x-gogs-event")?, headers, body)?,
        WebhookProvider::GitLab => gitlab(event("x-gitlab-event")?, headers, body)?,
        WebhookProvider::Bitbucket => bitbucket(event("x-event-key")?, headers, body)?,
        WebhookProvider::AzureDevops => return azure(headers, body),
        WebhookProvider::HmacSha256 | WebhookProvider::HmacSha512 | WebhookProvider::StandardWebhooks => {
            generic(headers, body)?
        }
    };
    let id = match provider {
        WebhookProvider::Auto | WebhookProvider::GitHub => id("x-github-delivery"),
        WebhookProvider::Gitea => id("x-gitea-delivery"),
        WebhookProvider::Forgejo => id("x-forgejo-delivery"),
        WebhookProvider::Gogs => id("x-gogs-delivery"),
        // The id is signed and stays the same on a retry.
        WebhookProvider::GitLab => {
            id("webhook-id").or_else(|| id("idempotency-key")).or_else(|| id("x-gitlab-event-uuid"))
        }
        WebhookProvider::Bitbucket => id("x-request-uuid").or_else(|| id("x-request-id")),
        WebhookProvider::AzureDevops => None,
        WebhookProvider::HmacSha256 | WebhookProvider::HmacSha512 | WebhookProvider::StandardWebhooks => {
            id("webhook-id").or_else(|| id("idempotency-key")).or_else(|| id("x-request-id"))
        }
    };
    Ok((notice, id))
}

/// Whether a text is usable as a delivery id: it is stored and shown.
fn is_id(text: &str) -> bool {
    (1..=200).contains(&text.len()) && text.bytes().all(|it| it.is_ascii_graphic())
}

fn forge(event: String, headers: &HeaderMap, body: &[u8]) -> Result<Notice, Malformed> {
    match event.as_str() {
        "push" => {}
        "ping" => return Ok(Notice { event, kind: EventKind::Ping, ..Notice::default() }),
        "package" | "registry_package" => return Ok(package(event, parse(headers, body)?)),
        _ => return Ok(Notice { event, ..Notice::default() }),
    }
    let push: Push = parse(headers, body)?;
    let repository = push.repository.unwrap_or_default();
    Ok(Notice {
        event,
        kind: EventKind::Push,
        moved: moved(push.reference, push.after, push.deleted),
        origins: repository.origins(),
        default_branch: text(repository.default_branch),
        images: Vec::new(),
    })
}

/// An image that was pushed to the registry of GitHub, Gitea or Forgejo. GitHub's payload has the reference; those of the
/// others have its parts, and the forge is the registry.
fn package(event: String, payload: PackageEvent) -> Notice {
    let PackageEvent { action, package, registry_package } = payload;
    let package = registry_package.or(package).unwrap_or_default();
    let is_pushed =
        action.is_some_and(|action| matches!(action.0.as_str(), "published" | "updated" | "created"));
    let of_github = || {
        let version = package.image_version.as_ref()?;
        let url = version.package_url.as_ref().map(|url| url.0.trim_end_matches(':').to_owned());
        let tag = version.container_metadata.as_ref()?.tag.as_ref()?.name.as_ref()?.0.clone();
        let url = url.filter(|url| !url.is_empty())?;
        let name = ImageRef::split(&url).name;
        (!tag.is_empty()).then(|| format!("{name}:{tag}"))
    };
    let of_gitea = || {
        let is_image = package.kind.as_ref().is_some_and(|kind| kind.0 == "container");
        let page = reqwest::Url::parse(&package.html_url.as_ref().filter(|_| is_image)?.0).ok()?;
        let port = page.port().map(|port| format!(":{port}")).unwrap_or_default();
        let host = format!("{}{port}", page.host_str()?);
        let owner = package.owner.as_ref()?;
        let owner = owner.username.as_ref().or(owner.login.as_ref())?;
        let path = format!("{}/{}", owner.0, package.name.as_ref()?.0).to_lowercase();
        Some(format!("{host}/{path}:{}", package.version.as_ref()?.0))
    };
    let image = of_github().or_else(of_gitea).filter(|_| is_pushed);
    let images = image.into_iter().filter(|image| is_image(image)).collect();
    Notice { event, kind: EventKind::Image, images, ..Notice::default() }
}

/// Whether a text is a reference to an image of a registry.
fn is_image(text: &str) -> bool {
    ImageRef::check(text).is_ok()
}

fn gitlab(event: String, headers: &HeaderMap, body: &[u8]) -> Result<Notice, Malformed> {
    if !matches!(event.as_str(), "Push Hook" | "Tag Push Hook" | "System Hook") {
        return Ok(Notice { event, ..Notice::default() });
    }
    let push: GitLabPush = parse(headers, body)?;
    let what = text(push.event_name).or_else(|| text(push.object_kind)).unwrap_or_default();
    if event == "System Hook" && !matches!(what.as_str(), "push" | "tag_push") {
        return Ok(Notice { event: format!("System Hook {what}"), ..Notice::default() });
    }
    let project = push.project.unwrap_or_default();
    Ok(Notice {
        event,
        kind: EventKind::Push,
        moved: moved(push.reference, push.after, None),
        origins: project.origins(),
        default_branch: text(project.default_branch),
        images: Vec::new(),
    })
}

fn bitbucket(event: String, headers: &HeaderMap, body: &[u8]) -> Result<Notice, Malformed> {
    let moved = match event.as_str() {
        "diagnostics:ping" => return Ok(Notice { event, kind: EventKind::Ping, ..Notice::default() }),
        "repo:push" => {
            let push: CloudPush = parse(headers, body)?;
            let changes = push.push.map(|it| it.changes).unwrap_or_default();
            (changes.into_iter().filter_map(CloudChange::moved).collect(), push.repository)
        }
        "repo:refs_changed" | "mirror:repo_synchronized" => {
            let push: CenterPush = parse(headers, body)?;
            (push.changes.into_iter().filter_map(CenterChange::moved).collect(), push.repository)
        }
        _ => return Ok(Notice { event, ..Notice::default() }),
    };
    let (moved, repository) = moved;
    let origins = repository.unwrap_or_default().origins();
    Ok(Notice { event, kind: EventKind::Push, moved, origins, ..Notice::default() })
}

fn azure(headers: &HeaderMap, body: &[u8]) -> Result<(Notice, Option<String>), Malformed> {
    let push: AzurePush = parse(headers, body)?;
    let id = text(push.id).filter(|it| is_id(it));
    let event = text(push.event_type).ok_or_else(|| Malformed::Json("it has no `eventType`".to_owned()))?;
    if event != "git.push" {
        return Ok((Notice { event, ..Notice::default() }, id));
    }
    let resource = push.resource.unwrap_or_default();
    let repository = resource.repository.unwrap_or_default();
    let moved = resource.updates.into_iter().flat_map(|it| moved(it.name, it.new, None)).collect();
    let origins = repository.remote_url.into_iter().map(|it| Origin::of(&it.0)).collect();
    let default_branch = text(repository.default_branch);
    Ok((Notice { event, kind: EventKind::Push, moved, origins, default_branch, ..Notice::default() }, id))
}

/// Any JSON with a reference; without a body, an unknown reference moved.
fn generic(headers: &HeaderMap, body: &[u8]) -> Result<Notice, Malformed> {
    let body: Generic =
        if body.iter().all(u8::is_ascii_whitespace) { Generic::default() } else { parse(headers, body)? };
    let images = pushed_images(&body);
    let event = text(body.kind).unwrap_or_else(|| "push".to_owned());
    if event == "ping" {
        return Ok(Notice { event, kind: EventKind::Ping, ..Notice::default() });
    }
    if !images.is_empty() {
        let event = if event == "push" { "image".to_owned() } else { event };
        return Ok(Notice { event, kind: EventKind::Image, images, ..Notice::default() });
    }
    let inner = body.data.unwrap_or_default();
    let repository = body.repository.or(inner.repository).unwrap_or_default();
    Ok(Notice {
        event,
        kind: EventKind::Push,
        moved: moved(
            body.reference.or(inner.reference),
            body.after.or(inner.after),
            body.deleted.or(inner.deleted),
        ),
        origins: repository.origins(),
        default_branch: text(repository.default_branch),
        images: Vec::new(),
    })
}

/// The images of `image`, `images`, Docker Hub's `push_data` or Harbor's `event_data`.
fn pushed_images(body: &Generic) -> Vec<String> {
    let named = body.image.iter().chain(&body.images).map(|image| image.0.clone());
    let of_hub = body.push_data.iter().filter_map(|push| {
        let name = body.repository.as_ref()?.repo_name.as_ref()?;
        Some(format!("{}:{}", name.0, push.tag.as_ref()?.0))
    });
    let of_harbor = body.event_data.iter().flat_map(|data| &data.resources);
    let of_harbor = of_harbor.filter_map(|resource| Some(resource.resource_url.as_ref()?.0.clone()));
    named.chain(of_hub).chain(of_harbor).filter(|image| is_image(image)).take(MOST_IMAGES).collect()
}

fn moved(reference: Option<Text>, after: Option<Text>, deleted: Option<bool>) -> Vec<Moved> {
    let Some(reference) = text(reference) else { return Vec::new() };
    let after = text(after);
    let is_gone = after.as_ref().is_some_and(|it| !it.is_empty() && it.bytes().all(|it| it == b'0'));
    let deleted = deleted.unwrap_or(false) || is_gone;
    vec![Moved {
        reference,
        commit: after.filter(|_| !deleted).and_then(|id| CommitId::parse(&id).ok()),
        deleted,
    }]
}

fn parse<T: DeserializeOwned>(headers: &HeaderMap, body: &[u8]) -> Result<T, Malformed> {
    let kind = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    // Some scripts send no content type.
    if !(kind.is_empty() || kind.eq_ignore_ascii_case("application/json") || kind.ends_with("+json")) {
        return Err(Malformed::ContentType);
    }
    // serde would read a list as the fields in order.
    if body.iter().find(|it| !it.is_ascii_whitespace()) != Some(&b'{') {
        return Err(Malformed::Json("it is no object".to_owned()));
    }
    serde_json::from_slice(body).map_err(|error| Malformed::Json(error.to_string()))
}

fn text(text: Option<Text>) -> Option<String> {
    text.map(|it| it.0)
}

/// A short text without control characters, because it may be printed.
#[derive(Debug, Default)]
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Short;
        impl Visitor<'_> for Short {
            type Value = Text;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a text")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
                if text.len() > LONGEST_TEXT {
                    return Err(E::custom("a text in it is too long"));
                }
                Ok(Text(text.chars().filter(|letter| !is_unprintable(*letter)).collect()))
            }
        }
        deserializer.deserialize_str(Short)
    }
}

/// `package` of Gitea and Forgejo, `package` and `registry_package` of GitHub.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PackageEvent {
    action: Option<Text>,
    package: Option<Package>,
    registry_package: Option<Package>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Package {
    name: Option<Text>,
    version: Option<Text>,
    #[serde(rename = "type")]
    kind: Option<Text>,
    html_url: Option<Text>,
    owner: Option<PackageOwner>,
    #[serde(rename = "package_version")]
    image_version: Option<PackageVersion>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PackageOwner {
    username: Option<Text>,
    login: Option<Text>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PackageVersion {
    package_url: Option<Text>,
    container_metadata: Option<ContainerMetadata>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerMetadata {
    tag: Option<ContainerTag>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerTag {
    name: Option<Text>,
}

/// `push_data` of Docker Hub.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HubPush {
    tag: Option<Text>,
}

/// `event_data` of Harbor.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HarborPush {
    resources: Vec<HarborResource>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HarborResource {
    resource_url: Option<Text>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Push {
    #[serde(rename = "ref")]
    reference: Option<Text>,
    after: Option<Text>,
    deleted: Option<bool>,
    repository: Option<Place>,
}

/// The repository object of GitHub, GitLab, Gitea, Forgejo and Gogs, whose field names differ.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Place {
    clone_url: Option<Text>,
    ssh_url: Option<Text>,
    html_url: Option<Text>,
    git_http_url: Option<Text>,
    git_ssh_url: Option<Text>,
    full_name: Option<Text>,
    path_with_namespace: Option<Text>,
    default_branch: Option<Text>,
    /// `team/web`, at Docker Hub.
    repo_name: Option<Text>,
}

impl Place {
    fn origins(&self) -> Vec<Origin> {
        let urls = [&self.clone_url, &self.ssh_url, &self.html_url, &self.git_http_url, &self.git_ssh_url];
        let urls: Vec<Origin> = urls.into_iter().flatten().map(|it| Origin::of(&it.0)).collect();
        if !urls.is_empty() {
            return urls;
        }
        let names = [&self.full_name, &self.path_with_namespace];
        names.into_iter().flatten().map(|it| Origin::path(&it.0)).collect()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GitLabPush {
    event_name: Option<Text>,
    object_kind: Option<Text>,
    #[serde(rename = "ref")]
    reference: Option<Text>,
    after: Option<Text>,
    project: Option<Place>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CloudPush {
    push: Option<CloudChanges>,
    repository: Option<AtlassianPlace>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CloudChanges {
    changes: Vec<CloudChange>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CloudChange {
    new: Option<CloudReference>,
    old: Option<CloudReference>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CloudReference {
    #[serde(rename = "type")]
    kind: Option<Text>,
    name: Option<Text>,
    target: Option<CloudTarget>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CloudTarget {
    hash: Option<Text>,
}

impl CloudChange {
    /// A change without a new side deleted the reference.
    fn moved(self) -> Option<Moved> {
        let deleted = self.new.is_none();
        let reference = self.new.or(self.old)?;
        let folder = match reference.kind?.0.as_str() {
            "branch" | "named_branch" => "heads",
            "tag" | "annotated_tag" => "tags",
            _ => return None,
        };
        let commit = reference.target.and_then(|it| it.hash).map(|it| it.0);
        let commit = commit.filter(|_| !deleted).and_then(|id| CommitId::parse(&id).ok());
        Some(Moved { reference: format!("refs/{folder}/{}", reference.name?.0), commit, deleted })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CenterPush {
    changes: Vec<CenterChange>,
    repository: Option<AtlassianPlace>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct CenterChange {
    #[serde(rename = "ref")]
    reference: Option<CenterReference>,
    ref_id: Option<Text>,
    to_hash: Option<Text>,
    #[serde(rename = "type")]
    kind: Option<Text>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CenterReference {
    id: Option<Text>,
}

impl CenterChange {
    fn moved(self) -> Option<Moved> {
        let name = self.ref_id.or(self.reference.and_then(|it| it.id));
        let is_deletion = text(self.kind).is_some_and(|it| it == "DELETE");
        moved(name, self.to_hash, Some(is_deletion)).pop()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AtlassianPlace {
    full_name: Option<Text>,
    slug: Option<Text>,
    project: Option<AtlassianProject>,
    links: Option<AtlassianLinks>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AtlassianProject {
    key: Option<Text>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AtlassianLinks {
    html: Option<AtlassianLink>,
    clone: Vec<AtlassianLink>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AtlassianLink {
    href: Option<Text>,
}

impl AtlassianPlace {
    fn origins(self) -> Vec<Origin> {
        let links = self.links.unwrap_or_default();
        let links = links.html.into_iter().chain(links.clone).filter_map(|it| it.href);
        let mut origins: Vec<Origin> = links.map(|it| Origin::of(&it.0)).collect();
        origins.extend(self.full_name.map(|it| Origin::path(&it.0)));
        if let (Some(project), Some(slug)) = (self.project.and_then(|it| it.key), self.slug) {
            origins.push(Origin::path(&format!("{}/{}", project.0, slug.0)));
        }
        origins
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AzurePush {
    id: Option<Text>,
    event_type: Option<Text>,
    resource: Option<AzureResource>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AzureResource {
    #[serde(rename = "refUpdates")]
    updates: Vec<AzureUpdate>,
    repository: Option<AzurePlace>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AzureUpdate {
    name: Option<Text>,
    #[serde(rename = "newObjectId")]
    new: Option<Text>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AzurePlace {
    remote_url: Option<Text>,
    default_branch: Option<Text>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Generic {
    #[serde(rename = "type")]
    kind: Option<Text>,
    #[serde(rename = "ref")]
    reference: Option<Text>,
    after: Option<Text>,
    deleted: Option<bool>,
    #[serde(deserialize_with = "place")]
    repository: Option<Place>,
    data: Option<Inner>,
    image: Option<Text>,
    images: Vec<Text>,
    push_data: Option<HubPush>,
    event_data: Option<HarborPush>,
}

/// The payload of Standard Webhooks, under `data`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Inner {
    #[serde(rename = "ref")]
    reference: Option<Text>,
    after: Option<Text>,
    deleted: Option<bool>,
    #[serde(deserialize_with = "place")]
    repository: Option<Place>,
}

/// An object, or the URL alone as scripts write it.
fn place<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Place>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Url(Text),
        Place(Place),
    }
    let either: Option<Either> = Option::deserialize(deserializer)?;
    Ok(either.map(|it| match it {
        Either::Url(url) => Place { clone_url: Some(url), ..Place::default() },
        Either::Place(place) => place,
    }))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn images(
        provider: WebhookProvider,
        event: Option<(&'static str, &'static str)>,
        body: &str,
    ) -> Vec<String> {
        let mut headers = HeaderMap::new();
        if let Some((name, value)) = event {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let (notice, _) = read(provider, &headers, body.as_bytes()).unwrap();
        assert_eq!(notice.kind == EventKind::Image, !notice.images.is_empty() || event.is_some(), "{body}");
        notice.images
    }

    #[test]
    fn image_of_a_script_is_read() {
        let of = |body: &str| images(WebhookProvider::HmacSha256, None, body);
        assert_eq!(of(r#"{"image": "ghcr.io/team/web:prod"}"#), ["ghcr.io/team/web:prod"]);
        assert_eq!(of(r#"{"images": ["web", "db:1"]}"#), ["web", "db:1"]);
        assert!(of(r#"{"image": "not an image"}"#).is_empty());
        let many = format!(r#"{{"images": [{}]}}"#, vec!["\"web\""; 500].join(","));
        assert_eq!(of(&many).len(), MOST_IMAGES);
    }

    #[test]
    fn image_of_a_registry_is_read() {
        let of = |body: &str| images(WebhookProvider::HmacSha256, None, body);
        let hub = r#"{"push_data": {"tag": "prod", "pusher": "me"},
            "repository": {"repo_name": "team/web", "repo_url": "https://hub.docker.com/r/team/web"}}"#;
        assert_eq!(of(hub), ["team/web:prod"]);
        let harbor = r#"{"type": "PUSH_ARTIFACT", "event_data": {"resources":
            [{"tag": "prod", "resource_url": "harbor.example.com/team/web:prod"}]}}"#;
        assert_eq!(of(harbor), ["harbor.example.com/team/web:prod"]);
    }

    #[test]
    fn image_of_a_forge_is_read() {
        let of_github =
            |event, body: &str| images(WebhookProvider::GitHub, Some(("x-github-event", event)), body);
        let body = r#"{"action": "published", "registry_package": {"name": "web", "package_type": "CONTAINER",
            "package_version": {"package_url": "ghcr.io/team/web:prod",
                "container_metadata": {"tag": {"name": "prod"}}}}}"#;
        assert_eq!(of_github("registry_package", body), ["ghcr.io/team/web:prod"]);
        // A version without a tag, as a platform of an index.
        let untagged = body.replace("\"name\": \"prod\"", "\"name\": \"\"");
        assert!(of_github("registry_package", &untagged).is_empty());
        let gitea = r#"{"action": "created", "package": {"type": "container", "name": "Web", "version": "prod",
            "html_url": "https://git.example.com:3000/team/-/packages/container/web/prod",
            "owner": {"username": "Team"}}}"#;
        let of_gitea = |body: &str| images(WebhookProvider::Gitea, Some(("x-gitea-event", "package")), body);
        assert_eq!(of_gitea(gitea), ["git.example.com:3000/team/web:prod"]);
        assert!(of_gitea(&gitea.replace("created", "deleted")).is_empty());
        assert!(of_gitea(&gitea.replace("container\"", "npm\"")).is_empty());
    }
}
