//! The XML of servers: lists of objects, and errors. Document types, and so entities, are refused by the parser.

use driftless_model::Timestamp;
use roxmltree::{Document, Node, ParsingOptions};

use crate::{error::Error, listed::Listed};

/// The most elements and texts of an answer.
const MOST_NODES: u32 = 200_000;

/// One page of a list.
pub(crate) struct ListPage {
    pub(crate) objects: Vec<Listed>,
    /// For the next page. `None`: this is the last one.
    pub(crate) next: Option<String>,
}

fn document(text: &str) -> Result<Document<'_>, Error> {
    let options = ParsingOptions { nodes_limit: MOST_NODES, ..ParsingOptions::default() };
    Document::parse_with_options(text, options).map_err(|error| Error::Foreign(error.to_string()))
}

/// The first element of this name below `node`, in any namespace.
fn below<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    node.descendants().find(|child| child.is_element() && child.tag_name().name() == name)
}

fn text<'a>(node: Node<'a, '_>, name: &str) -> Option<&'a str> {
    below(node, name).and_then(|child| child.text()).map(str::trim).filter(|text| !text.is_empty())
}

/// Quotes are part of a tag; some servers leave them out in lists.
fn tag(text: &str) -> String {
    let plain = text.strip_prefix("W/").unwrap_or(text).trim_matches('"');
    format!("\"{plain}\"")
}

/// A page of `ListObjectsV2`. Names are without `prefix`.
pub(crate) fn bucket_page(body: &str, prefix: &str) -> Result<ListPage, Error> {
    let document = document(body)?;
    let root = document.root_element();
    if root.tag_name().name() != "ListBucketResult" {
        return Err(Error::Foreign("it is no list of a bucket".to_owned()));
    }
    let entries = root.children().filter(|child| child.tag_name().name() == "Contents");
    let objects = entries.filter_map(|entry| {
        let name = text(entry, "Key")?.strip_prefix(prefix)?.to_owned();
        let modified = text(entry, "LastModified").and_then(Timestamp::parse);
        Some(Listed { name, tag: text(entry, "ETag").map(tag), modified })
    });
    let objects = objects.collect();
    let is_cut = text(root, "IsTruncated") == Some("true");
    let next = text(root, "NextContinuationToken").filter(|_| is_cut).map(str::to_owned);
    Ok(ListPage { objects, next })
}

/// The answer of `PROPFIND`: all but folders.
pub(crate) fn folder_list(body: &str) -> Result<Vec<Listed>, Error> {
    let document = document(body)?;
    let root = document.root_element();
    if root.tag_name().name() != "multistatus" {
        return Err(Error::Foreign("it is no list of a WebDAV folder".to_owned()));
    }
    let responses = root.children().filter(|child| child.tag_name().name() == "response");
    let objects = responses.filter_map(|response| {
        let path = text(response, "href")?;
        let name = path.rsplit('/').next().filter(|name| !name.is_empty())?;
        let modified = text(response, "getlastmodified").and_then(Timestamp::parse_http);
        Some(Listed { name: name.to_owned(), tag: text(response, "getetag").map(tag), modified })
    });
    Ok(objects.collect())
}

/// The code and message of an error of S3. `None`: it is another text.
pub(crate) fn error_message(body: &str) -> Option<String> {
    let document = document(body).ok()?;
    let root = document.root_element();
    let (code, message) = (text(root, "Code"), text(root, "Message"));
    match (code, message) {
        (Some(code), Some(message)) => Some(format!("{code}: {message}")),
        (Some(one), None) | (None, Some(one)) => Some(one.to_owned()),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_of_a_bucket_is_read_without_its_prefix() {
        let body = r#"<?xml version="1.0" encoding="UTF-8"?>
            <ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>fleet</Name><Prefix>prod/</Prefix>
            <IsTruncated>true</IsTruncated><NextContinuationToken>a+b=</NextContinuationToken>
            <Contents><Key>prod/nas.json.gz</Key><LastModified>2026-11-23T18:00:00.000Z</LastModified>
            <ETag>&quot;abc&quot;</ETag><Size>3</Size></Contents>
            <Contents><Key>other</Key></Contents></ListBucketResult>"#;
        let page = bucket_page(body, "prod/").unwrap();
        let modified = Timestamp::parse("2026-11-23T18:00:00Z");
        let nas = Listed { name: "nas.json.gz".to_owned(), tag: Some("\"abc\"".to_owned()), modified };
        assert_eq!((page.objects, page.next.as_deref()), (vec![nas], Some("a+b=")));
        assert!(matches!(bucket_page("<html/>", ""), Err(Error::Foreign(_))));
        assert!(matches!(bucket_page("<", ""), Err(Error::Foreign(_))));
    }

    #[test]
    fn list_of_a_folder_has_no_folders() {
        let body = r#"<D:multistatus xmlns:D="DAV:"><D:response><D:href>/fleet/</D:href><D:propstat><D:prop>
            <D:getlastmodified>Mon, 23 Nov 2026 18:00:00 GMT</D:getlastmodified></D:prop></D:propstat></D:response>
            <D:response><D:href>http://host/fleet/nas.json.gz</D:href><D:propstat><D:prop>
            <D:getetag>W/"1a"</D:getetag><D:getlastmodified>Mon, 23 Nov 2026 18:00:00 GMT</D:getlastmodified>
            </D:prop></D:propstat></D:response></D:multistatus>"#;
        let objects = folder_list(body).unwrap();
        assert_eq!(objects.len(), 1);
        assert_eq!((objects[0].name.as_str(), objects[0].tag.as_deref()), ("nas.json.gz", Some("\"1a\"")));
        assert_eq!(objects[0].modified, Timestamp::parse("2026-11-23T18:00:00Z"));
    }

    #[test]
    fn entities_and_endless_lists_are_refused() {
        let bomb = r#"<!DOCTYPE a [<!ENTITY b "bbbb"><!ENTITY c "&b;&b;">]><multistatus>&c;</multistatus>"#;
        assert!(matches!(folder_list(bomb), Err(Error::Foreign(_))));
        let endless = format!("<multistatus>{}</multistatus>", "<a/>".repeat(250_000));
        assert!(matches!(folder_list(&endless), Err(Error::Foreign(_))));
    }

    #[test]
    fn error_has_code_and_message_and_nothing_else() {
        let body = "<Error><Code>SignatureDoesNotMatch</Code><Message>It does not match.</Message><AWSAccessKeyId>A</AWSAccessKeyId><StringToSign>x</StringToSign></Error>";
        assert_eq!(error_message(body).as_deref(), Some("SignatureDoesNotMatch: It does not match."));
        assert_eq!(error_message("<html><body>no</body></html>"), None);
        assert_eq!(error_message("no XML"), None);
    }
}
