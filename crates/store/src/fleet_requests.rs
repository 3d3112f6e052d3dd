//! Requests of a collector to enrolled hosts. A collector stores each request until the host has reported its result. A host
//! stores the id of a request before it acts, so that it acts at most once, also after a crash.

use driftless_model::{HostRequest, HostRequestOutcome, HostRequestResult, Timestamp};
use rusqlite::{OptionalExtension, Row, Transaction, params};

use crate::{
    error::{BoxError, Durability, Error},
    store::{Store, from_sql, readable, to_json, to_sql},
};

const WHAT: &str = "the requests of the fleet";

/// The most requests that a collector stores which are over, and the most ids that a host stores. The oldest are removed.
const MOST: u64 = 1000;

/// The most requests that wait at a collector for all its hosts. One has about 500 bytes.
const MOST_WAITING: u64 = 10_000;

/// The most results in a report.
const MOST_RESULTS: u64 = 20;

/// A request at a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRequest {
    /// The name of the host.
    pub host: String,
    /// The request.
    pub request: HostRequest,
    /// When it was made.
    pub created: Timestamp,
    /// When it was last sent.
    pub sent: Option<Timestamp>,
    /// When the host reported the result, or when the request expired before it was sent.
    pub ended: Option<Timestamp>,
    /// The result.
    pub result: Option<HostRequestResult>,
}

/// The decision about a new request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestCreation {
    /// It waits for the next report of the host.
    Created,
    /// The host has no key.
    NotEnrolled,
    /// Too many requests wait for the host already.
    TooMany,
    /// Too many requests wait for all hosts together.
    TooManyInAll {
        /// The limit.
        most: u64,
    },
}

impl Store {
    /// Stores a request to an enrolled host. At most `most` wait for it. One that waits is never removed for a new one.
    pub fn create_fleet_request(
        &self,
        host: &str,
        request: &HostRequest,
        most: u64,
        now: Timestamp,
    ) -> Result<RequestCreation, Error> {
        self.write(WHAT, Durability::Power, |transaction| {
            let key = "SELECT 1 FROM fleet_keys WHERE host = ?1";
            if transaction.query_row(key, params![host], |_| Ok(())).optional()?.is_none() {
                return Ok(RequestCreation::NotEnrolled);
            }
            end_expired(transaction, now)?;
            let (of_host, of_all): (i64, i64) = transaction.query_row(
                "SELECT COUNT(CASE WHEN host = ?1 THEN 1 END), COUNT(*) FROM fleet_requests
                 WHERE ended IS NULL AND expires > ?2",
                params![host, to_sql(now.0)],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )?;
            if from_sql(of_host) >= most {
                return Ok(RequestCreation::TooMany);
            }
            if from_sql(of_all) >= MOST_WAITING {
                return Ok(RequestCreation::TooManyInAll { most: MOST_WAITING });
            }
            transaction.execute(
                "INSERT INTO fleet_requests (id, host, created, expires, request) VALUES (?1, ?2, ?3, ?4, ?5)",
                params![request.id, host, to_sql(now.0), to_sql(request.expires.0), to_json(request)?],
            )?;
            transaction.execute(
                "DELETE FROM fleet_requests WHERE (ended IS NOT NULL OR expires <= ?1) AND sequence <=
                 (SELECT sequence FROM fleet_requests WHERE ended IS NOT NULL OR expires <= ?1
                  ORDER BY sequence DESC LIMIT 1 OFFSET ?2)",
                params![to_sql(now.0), to_sql(MOST)],
            )?;
            Ok(RequestCreation::Created)
        })
    }

    /// The requests that a host is to get now, oldest first: those that have no result and have not expired. One that was made in the
    /// future has perhaps: the clock is behind.
    pub fn due_fleet_requests(
        &self,
        host: &str,
        most: u64,
        now: Timestamp,
    ) -> Result<Vec<HostRequest>, Error> {
        let has_expired = self.read(WHAT, |connection| {
            let query = format!("SELECT 1 FROM fleet_requests WHERE {EXPIRED}");
            Ok(connection.prepare_cached(&query)?.exists(params![to_sql(now.0)])?)
        })?;
        if has_expired {
            self.write(WHAT, Durability::Process, |transaction| end_expired(transaction, now))?;
        }
        let due = self.waiting_requests(host, most, now)?;
        if due.is_empty() { Ok(due) } else { self.mark_requests_sent(due, now) }
    }

    fn waiting_requests(&self, host: &str, most: u64, now: Timestamp) -> Result<Vec<HostRequest>, Error> {
        self.read(WHAT, |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT request FROM fleet_requests
                 WHERE host = ?1 AND ended IS NULL AND expires > ?2 AND created <= ?2
                 ORDER BY sequence LIMIT ?3",
            )?;
            let rows = statement
                .query_map(params![host, to_sql(now.0), to_sql(most)], |row| row.get::<_, String>(0))?;
            let texts: Vec<String> = rows.collect::<Result<_, _>>()?;
            Ok(texts.iter().filter_map(|text| readable("a request of the fleet", text)).collect())
        })
    }

    /// Stores that these requests are sent now. Returns those that may be: the others have ended since they were read.
    fn mark_requests_sent(&self, due: Vec<HostRequest>, now: Timestamp) -> Result<Vec<HostRequest>, Error> {
        self.write(WHAT, Durability::Process, |transaction| {
            let mut update = transaction
                .prepare_cached("UPDATE fleet_requests SET sent = ?2 WHERE id = ?1 AND ended IS NULL")?;
            let mut sent = Vec::new();
            for request in due {
                if update.execute(params![request.id, to_sql(now.0)])? > 0 {
                    sent.push(request);
                }
            }
            Ok(sent)
        })
    }

    /// Stores the results that a host has reported. Returns the requests that end by that. The host knows better than the collector
    /// about a request that was cancelled after it was sent.
    pub fn end_fleet_requests(
        &self,
        host: &str,
        results: &[HostRequestResult],
        now: Timestamp,
    ) -> Result<Vec<StoredRequest>, Error> {
        if results.is_empty() {
            return Ok(Vec::new());
        }
        self.write(WHAT, Durability::Power, |transaction| {
            let mut ended = Vec::new();
            for result in results {
                let cancelled = to_json(&result_without_host(&result.id, true, CANCELLED))?;
                let changed = transaction.execute(
                    "UPDATE fleet_requests SET ended = ?3, result = ?4
                     WHERE id = ?1 AND host = ?2 AND (ended IS NULL OR result = ?5 AND result <> ?4)",
                    params![result.id, host, to_sql(now.0), to_json(result)?, cancelled],
                )?;
                if changed > 0 {
                    let query = format!("{SELECT} WHERE id = ?1");
                    ended.extend(
                        transaction.query_row(&query, params![result.id], stored_request).optional()?,
                    );
                }
            }
            Ok(ended.into_iter().flatten().collect())
        })
    }

    /// The requests to a host or to all, newest first.
    pub fn fleet_requests(&self, host: Option<&str>, limit: u64) -> Result<Vec<StoredRequest>, Error> {
        self.read(WHAT, |connection| {
            let query = format!("{SELECT} WHERE (?1 IS NULL OR host = ?1) ORDER BY sequence DESC LIMIT ?2");
            let mut statement = connection.prepare_cached(&query)?;
            let rows = statement.query_map(params![host, to_sql(limit)], stored_request)?;
            Ok(rows.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
        })
    }

    /// Ends the request with an id that begins with these digits, so that it is not sent any more. Returns it as it was. `None`: there is
    /// none without a result, or several.
    pub fn cancel_fleet_request(&self, id: &str, now: Timestamp) -> Result<Option<StoredRequest>, Error> {
        self.write(WHAT, Durability::Power, |transaction| {
            end_expired(transaction, now)?;
            let query = format!("{SELECT} WHERE ended IS NULL AND substr(id, 1, length(?1)) = ?1 LIMIT 2");
            let mut statement = transaction.prepare_cached(&query)?;
            let found: Vec<_> =
                statement.query_map(params![id], stored_request)?.collect::<Result<_, _>>()?;
            let [Some(request)] = found.as_slice() else { return Ok(None) };
            end_request(transaction, &request.request.id, request.sent.is_some(), CANCELLED, now)?;
            Ok(Some(request.clone()))
        })
    }

    /// Stores on a host that it is about to act on a request of a collector. False: it was stored before, and it must not act.
    pub fn begin_host_request(&self, url: &str, id: &str, now: Timestamp) -> Result<bool, Error> {
        let message = "the agent ended while it accepted the request".to_owned();
        let unknown = HostRequestResult { id: id.to_owned(), outcome: HostRequestOutcome::Unknown, message };
        self.write_twice(WHAT, Durability::Power, |transaction| {
            let begun = transaction.execute(
                "INSERT OR IGNORE INTO host_requests (id, url, at, result) VALUES (?1, ?2, ?3, ?4)",
                params![id, url, to_sql(now.0), to_json(&unknown)?],
            )?;
            transaction.execute(
                "DELETE FROM host_requests WHERE sequence <= (SELECT MAX(sequence) FROM host_requests) - ?1",
                params![to_sql(MOST)],
            )?;
            Ok(begun > 0)
        })
    }

    /// Stores on a host the result of a request that it has begun.
    pub fn end_host_request(&self, result: &HostRequestResult) -> Result<(), Error> {
        self.write_twice(WHAT, Durability::Power, |transaction| {
            transaction.execute(
                "UPDATE host_requests SET result = ?2 WHERE id = ?1",
                params![result.id, to_json(result)?],
            )?;
            Ok(())
        })
    }

    /// The results of the last requests of a collector, newest first.
    pub fn host_request_results(&self, url: &str) -> Result<Vec<HostRequestResult>, Error> {
        self.read(WHAT, |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT result FROM host_requests WHERE url = ?1 ORDER BY sequence DESC LIMIT ?2",
            )?;
            let rows =
                statement.query_map(params![url, to_sql(MOST_RESULTS)], |row| row.get::<_, String>(0))?;
            let texts: Vec<String> = rows.collect::<Result<_, _>>()?;
            Ok(texts.iter().filter_map(|text| readable("a result of the fleet", text)).collect())
        })
    }
}

/// Ends the requests to a host that it may still get or has got, and that have no result, because its key goes: another machine
/// may get its name. A request that expired before it was sent has ended already. Returns their number.
pub(crate) fn drop_requests(
    transaction: &Transaction<'_>,
    host: &str,
    why: &str,
    now: Timestamp,
) -> Result<u64, BoxError> {
    let mut query = transaction.prepare_cached(
        "SELECT id, sent FROM fleet_requests
         WHERE host = ?1 AND ended IS NULL AND (sent IS NOT NULL OR expires > ?2)",
    )?;
    let waiting: Vec<(String, Option<i64>)> = query
        .query_map(params![host, to_sql(now.0)], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    for (id, sent) in &waiting {
        end_request(transaction, id, sent.is_some(), why, now)?;
    }
    Ok(waiting.len() as u64)
}

/// Ends a request without a result of its host. If it was sent, the host may do it all the same.
fn end_request(
    transaction: &Transaction<'_>,
    id: &str,
    is_sent: bool,
    why: &str,
    now: Timestamp,
) -> Result<(), BoxError> {
    let result = result_without_host(id, is_sent, why);
    transaction
        .prepare_cached("UPDATE fleet_requests SET ended = ?2, result = ?3 WHERE id = ?1")?
        .execute(params![id, to_sql(now.0), to_json(&result)?])?;
    Ok(())
}

/// The result of a request that the collector ends.
fn result_without_host(id: &str, is_sent: bool, why: &str) -> HostRequestResult {
    let (outcome, before) = if is_sent {
        (HostRequestOutcome::Unknown, "it reported the result")
    } else {
        (HostRequestOutcome::Refused, "it was sent")
    };
    HostRequestResult { id: id.to_owned(), outcome, message: format!("{why} before {before}") }
}

/// The reason of the end of a request that was cancelled.
const CANCELLED: &str = "it was cancelled";

/// Requests that have expired before they were sent.
const EXPIRED: &str = "ended IS NULL AND sent IS NULL AND expires <= ?1";

/// Ends the requests that have expired before they were sent: none becomes valid again if the clock goes back.
fn end_expired(transaction: &Transaction<'_>, now: Timestamp) -> Result<(), BoxError> {
    let update = format!("UPDATE fleet_requests SET ended = expires WHERE {EXPIRED}");
    transaction.prepare_cached(&update)?.execute(params![to_sql(now.0)])?;
    Ok(())
}

const SELECT: &str = "SELECT host, request, created, sent, ended, result FROM fleet_requests";

/// `None`: another release has written it.
fn stored_request(row: &Row<'_>) -> Result<Option<StoredRequest>, rusqlite::Error> {
    let (request, result): (String, Option<String>) = (row.get(1)?, row.get(5)?);
    let Some(request) = readable("a request of the fleet", &request) else { return Ok(None) };
    let time = |value: Option<i64>| value.map(|at| Timestamp(from_sql(at)));
    Ok(Some(StoredRequest {
        host: row.get(0)?,
        request,
        created: Timestamp(from_sql(row.get(2)?)),
        sent: time(row.get(3)?),
        ended: time(row.get(4)?),
        result: result.and_then(|text| readable("a result of the fleet", &text)),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet_keys::tests::enrol;
    use driftless_clock::Clock;
    use driftless_model::{Actor, AppName, HostRequestKind};

    fn request(id: &str, expires: u64) -> HostRequest {
        HostRequest {
            id: id.to_owned(),
            kind: HostRequestKind::Sync,
            application: AppName::from("shop"),
            to: None,
            actor: Actor::agent(),
            expires: Timestamp(expires),
        }
    }

    fn result(id: &str, outcome: HostRequestOutcome) -> HostRequestResult {
        HostRequestResult { id: id.to_owned(), outcome, message: String::new() }
    }

    #[test]
    fn request_is_due_until_its_result_or_its_end() {
        let store = Store::in_memory(Clock::System).unwrap();
        let now = Timestamp(10);
        let create =
            |host, id, expires| store.create_fleet_request(host, &request(id, expires), 2, now).unwrap();
        assert_eq!(create("nas", "a", 100), RequestCreation::NotEnrolled);
        enrol(&store, "nas", "n");
        enrol(&store, "web", "w");
        assert_eq!(create("nas", "a", 100), RequestCreation::Created);
        assert_eq!(create("nas", "b", 50), RequestCreation::Created);
        assert_eq!(create("nas", "c", 50), RequestCreation::TooMany);
        assert_eq!(create("web", "d", 50), RequestCreation::Created);
        let ids = |host, at| -> Vec<String> {
            let due = store.due_fleet_requests(host, 9, Timestamp(at)).unwrap();
            due.into_iter().map(|it| it.id).collect()
        };
        let accepted = result("a", HostRequestOutcome::Accepted);
        assert_eq!(ids("nas", 20), ["a", "b"]);
        assert_eq!(ids("nas", 50), ["a"], "the other one has expired");
        let of_another = store.end_fleet_requests("web", std::slice::from_ref(&accepted), now).unwrap();
        assert_eq!(of_another, [], "another host cannot end it");
        let ended = store.end_fleet_requests("nas", std::slice::from_ref(&accepted), Timestamp(60)).unwrap();
        assert_eq!((ended.len(), ended[0].ended), (1, Some(Timestamp(60))));
        assert_eq!(store.end_fleet_requests("nas", &[accepted], Timestamp(61)).unwrap(), []);
        assert_eq!(ids("nas", 60), Vec::<String>::new());
        let all = store.fleet_requests(None, 9).unwrap();
        let all: Vec<_> = all.iter().map(|it| (it.request.id.as_str(), it.result.is_some())).collect();
        assert_eq!(all, [("d", false), ("b", false), ("a", true)]);
        assert_eq!(store.fleet_requests(Some("nas"), 9).unwrap().len(), 2);
    }

    #[test]
    fn expired_request_stays_so_if_the_clock_goes_back() {
        let store = Store::in_memory(Clock::System).unwrap();
        enrol(&store, "nas", "n");
        enrol(&store, "web", "w");
        let create = |id: &str, expires, at| {
            store.create_fleet_request("nas", &request(id, expires), 9, Timestamp(at)).unwrap()
        };
        let due = |host, at| store.due_fleet_requests(host, 9, Timestamp(at)).unwrap().len();
        assert_eq!(create("rollback", 200, 100), RequestCreation::Created);
        assert_eq!(due("nas", 50), 0, "it was made in the future");
        // The host is off, and another one reports.
        assert_eq!(due("web", 300), 0);
        assert_eq!(due("nas", 150), 0);
        let ended = store.fleet_requests(None, 9).unwrap().remove(0);
        assert_eq!((ended.sent, ended.ended, ended.result), (None, Some(Timestamp(200)), None));
        // Another request does the same.
        assert_eq!(create("sync", 500, 400), RequestCreation::Created);
        assert_eq!(create("later", 900, 600), RequestCreation::Created);
        assert_eq!(due("nas", 450), 0);
        assert_eq!(due("nas", 700), 1);
    }

    #[test]
    fn request_that_waits_is_not_removed_for_newer_ones() {
        let store = Store::in_memory(Clock::System).unwrap();
        for (host, key) in [("laptop", "l"), ("nas", "n"), ("web", "w")] {
            enrol(&store, host, key);
        }
        let create = |host, id: &str, expires, at| {
            store.create_fleet_request(host, &request(id, expires), MOST_WAITING, Timestamp(at)).unwrap()
        };
        assert_eq!(create("laptop", "first", 1000, 10), RequestCreation::Created);
        for number in 0..MOST + 5 {
            assert_eq!(create("nas", &format!("n{number}"), 100, 10), RequestCreation::Created);
        }
        let waits = |host, at| store.due_fleet_requests(host, 5000, Timestamp(at)).unwrap().len() as u64;
        assert_eq!((waits("laptop", 20), waits("nas", 20)), (1, MOST + 5));
        // Those that have expired are over.
        assert_eq!(create("web", "w", 1000, 200), RequestCreation::Created);
        assert_eq!(store.fleet_requests(Some("nas"), 5000).unwrap().len() as u64, MOST);
        assert_eq!((waits("laptop", 200), waits("web", 200)), (1, 1));
        let accepted = [result("first", HostRequestOutcome::Accepted)];
        assert_eq!(store.end_fleet_requests("laptop", &accepted, Timestamp(201)).unwrap().len(), 1);
        // Those that wait have a limit, too.
        let insert = "INSERT INTO fleet_requests (id, host, created, expires, request)
            WITH RECURSIVE numbers (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < ?1)
            SELECT 'm' || i, 'nas', 300, 1000, '' FROM numbers";
        let inserted = store.write(WHAT, Durability::Process, |transaction| {
            Ok(transaction.execute(insert, params![to_sql(MOST_WAITING - 1)])?)
        });
        assert_eq!(inserted.unwrap() as u64, MOST_WAITING - 1);
        assert_eq!(create("web", "x", 1000, 300), RequestCreation::TooManyInAll { most: MOST_WAITING });
    }

    #[test]
    fn requests_end_when_the_key_of_their_host_goes() {
        let store = Store::in_memory(Clock::System).unwrap();
        for (host, key) in [("nas", "n"), ("web", "w")] {
            enrol(&store, host, key);
        }
        let create = |host, id| {
            let created = store.create_fleet_request(host, &request(id, 100), 9, Timestamp(10)).unwrap();
            assert_eq!(created, RequestCreation::Created);
        };
        create("nas", "sent");
        assert_eq!(store.due_fleet_requests("nas", 9, Timestamp(11)).unwrap().len(), 1);
        create("nas", "new");
        create("web", "other");
        assert_eq!(store.revoke_fleet_key("nas", Timestamp(20)).unwrap().unwrap().requests, 2);
        // Another machine gets the name.
        enrol(&store, "nas", "m");
        assert_eq!(store.due_fleet_requests("nas", 9, Timestamp(21)).unwrap(), []);
        let ended = store.fleet_requests(Some("nas"), 9).unwrap();
        let results = ended.into_iter().map(|it| it.result.unwrap());
        let results: Vec<_> = results.map(|it| (it.id, it.outcome, it.message)).collect();
        let (new, sent) = ("before it was sent", "before it reported the result");
        let expected =
            [("new", HostRequestOutcome::Refused, new), ("sent", HostRequestOutcome::Unknown, sent)];
        let revoked = |text| format!("the key of the host was revoked {text}");
        assert_eq!(results, expected.map(|(id, outcome, text)| (id.to_owned(), outcome, revoked(text))));
        // A machine that gets another name takes no requests with it.
        enrol(&store, "attic", "w");
        let renamed = store.fleet_requests(Some("web"), 9).unwrap().remove(0).result.unwrap();
        assert_eq!(renamed.message, "the host joined as `attic` before it was sent");
        assert_eq!(store.due_fleet_requests("attic", 9, Timestamp(21)).unwrap(), []);
    }

    #[test]
    fn cancelled_request_is_not_sent() {
        let store = Store::in_memory(Clock::System).unwrap();
        enrol(&store, "nas", "n");
        for id in ["ab1", "ab2"] {
            store.create_fleet_request("nas", &request(id, 100), 9, Timestamp(10)).unwrap();
        }
        let cancel = |id| store.cancel_fleet_request(id, Timestamp(11)).unwrap().map(|it| it.request.id);
        assert_eq!(cancel("ab"), None, "two begin with it");
        assert_eq!(cancel("ab1").as_deref(), Some("ab1"));
        assert_eq!(cancel("ab1"), None, "it has ended");
        let due = store.due_fleet_requests("nas", 9, Timestamp(12)).unwrap();
        assert_eq!(due.into_iter().map(|it| it.id).collect::<Vec<_>>(), ["ab2"]);
        assert_eq!(cancel("ab").as_deref(), Some("ab2"), "it may be sent again");
        assert_eq!(store.due_fleet_requests("nas", 9, Timestamp(13)).unwrap(), []);
        let all = store.fleet_requests(None, 9).unwrap().into_iter().map(|it| it.result.unwrap());
        let all: Vec<_> = all.map(|it| (it.outcome, it.message)).collect();
        let said = |text: &str| format!("it was cancelled before {text}");
        assert_eq!(
            all,
            [
                (HostRequestOutcome::Unknown, said("it reported the result")),
                (HostRequestOutcome::Refused, said("it was sent")),
            ]
        );
    }

    #[test]
    fn cancelled_request_gets_the_result_of_its_host() {
        let store = Store::in_memory(Clock::System).unwrap();
        enrol(&store, "nas", "n");
        let create = |id| store.create_fleet_request("nas", &request(id, 100), 9, Timestamp(10)).unwrap();
        create("sent");
        assert_eq!(store.due_fleet_requests("nas", 9, Timestamp(11)).unwrap().len(), 1);
        create("new");
        for id in ["sent", "new"] {
            store.cancel_fleet_request(id, Timestamp(12)).unwrap().unwrap();
        }
        let report = |host| -> Vec<_> {
            let results = ["sent", "new"].map(|id| result(id, HostRequestOutcome::Accepted));
            let ended = store.end_fleet_requests(host, &results, Timestamp(13)).unwrap().into_iter();
            ended.map(|it| (it.request.id, it.result.unwrap().outcome)).collect()
        };
        assert_eq!(report("web"), []);
        assert_eq!(report("nas"), [("sent".to_owned(), HostRequestOutcome::Accepted)]);
        assert_eq!(report("nas"), [], "it is no news again");
    }

    #[test]
    fn request_cancelled_during_an_answer_is_not_sent() {
        let store = Store::in_memory(Clock::System).unwrap();
        enrol(&store, "nas", "n");
        for id in ["a", "b"] {
            store.create_fleet_request("nas", &request(id, 100), 9, Timestamp(10)).unwrap();
        }
        let waiting = store.waiting_requests("nas", 9, Timestamp(11)).unwrap();
        assert_eq!(waiting.len(), 2);
        store.cancel_fleet_request("a", Timestamp(11)).unwrap().unwrap();
        let sent = store.mark_requests_sent(waiting, Timestamp(11)).unwrap();
        assert_eq!(sent, [request("b", 100)]);
        let all = store.fleet_requests(None, 9).unwrap();
        let all: Vec<_> = all.iter().map(|it| (it.request.id.as_str(), it.sent)).collect();
        assert_eq!(all, [("b", Some(Timestamp(11))), ("a", None)]);
    }

    #[test]
    fn expired_request_keeps_its_end_when_the_key_goes() {
        let store = Store::in_memory(Clock::System).unwrap();
        enrol(&store, "nas", "n");
        for (id, expires) in [("sent", 15), ("expired", 20), ("waits", 100)] {
            store.create_fleet_request("nas", &request(id, expires), 9, Timestamp(10)).unwrap();
            if id == "sent" {
                assert_eq!(store.due_fleet_requests("nas", 9, Timestamp(11)).unwrap().len(), 1);
            }
        }
        assert_eq!(store.revoke_fleet_key("nas", Timestamp(20)).unwrap().unwrap().requests, 2);
        let all = store.fleet_requests(Some("nas"), 9).unwrap().into_iter();
        let all: Vec<_> = all.map(|it| (it.request.id, it.result.map(|it| it.outcome))).collect();
        let expected = [
            ("waits", Some(HostRequestOutcome::Refused)),
            ("expired", None),
            ("sent", Some(HostRequestOutcome::Unknown)),
        ];
        assert_eq!(all, expected.map(|(id, outcome)| (id.to_owned(), outcome)));
    }

    #[test]
    fn host_begins_each_request_once() {
        let store = Store::in_memory(Clock::System).unwrap();
        assert!(store.begin_host_request("http://hub", "a", Timestamp(1)).unwrap());
        assert!(!store.begin_host_request("http://hub", "a", Timestamp(2)).unwrap());
        assert!(!store.begin_host_request("http://other", "a", Timestamp(2)).unwrap());
        let results = store.host_request_results("http://hub").unwrap();
        assert_eq!(results[0].outcome, HostRequestOutcome::Unknown, "as after a crash");
        store.end_host_request(&result("a", HostRequestOutcome::Accepted)).unwrap();
        let results = store.host_request_results("http://hub").unwrap();
        assert_eq!(results, [result("a", HostRequestOutcome::Accepted)]);
        assert_eq!(store.host_request_results("http://other").unwrap(), []);
        for number in 0..25 {
            store.begin_host_request("http://hub", &number.to_string(), Timestamp(3)).unwrap();
        }
        assert_eq!(store.host_request_results("http://hub").unwrap().len(), 20);
    }
}
