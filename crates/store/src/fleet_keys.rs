//! The keys of a fleet: the agent's own key, the keys of enrolled hosts and the open invites on a collector, and on a host the
//! keys of its collectors.
//!
//! The agent's own private key is the file `fleet.key`. Keys of others are public; of an invite only the public half is stored.
//! Counters grow over restarts: a collector stores the last one of each host, and a host reserves many at a time.

use driftless_model::{Actor, ActorKind, ApiToken, Timestamp, digest_hex};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use crate::{
    error::{BoxError, Durability, Error},
    fleet::remove_host,
    fleet_requests::drop_requests,
    sealed::KEY_LENGTH,
    store::{Store, from_sql, readable, to_json, to_sql},
    tokens::CONFIGURED_TOKEN,
};

const WHAT: &str = "the keys of the fleet";

/// The digits of the id of an invite.
const INVITE_ID: usize = 12;

/// The columns of [`fleet_key`], in its order.
const COLUMNS: &str = "host, key, instance, enrolled, invited_by, counter, heard";

/// The key of an enrolled host, on a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetKey {
    /// The name of the host.
    pub host: String,
    /// Its public key.
    pub key: String,
    /// The id of the machine when it joined.
    pub instance: String,
    /// When it joined.
    pub enrolled: Timestamp,
    /// The actor that made the invite.
    pub invited_by: Actor,
    /// The counter of its last signed request.
    pub counter: u64,
    /// The time of its last signed request.
    pub heard: Option<Timestamp>,
}

/// An invite that nobody has used yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetInvite {
    /// The public key that is made from the token.
    pub key: String,
    /// The only host that may use it. `None`: any.
    pub host: Option<String>,
    /// The actor that made it.
    pub invited_by: Actor,
    /// It cannot be used from this moment on.
    pub expires: Timestamp,
}

impl FleetInvite {
    /// The id by which people name it: the first digits of the SHA-256 of its key.
    pub fn id(&self) -> String {
        let mut id = digest_hex(self.key.as_bytes());
        id.truncate(INVITE_ID);
        id
    }
}

/// A host that wants to join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoiningHost {
    /// The name of the host.
    pub host: String,
    /// Its public key.
    pub key: String,
    /// The id of the machine.
    pub instance: String,
    /// The public key of its invite.
    pub invite: String,
}

/// The decision about a host that wants to join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinOutcome {
    /// It is enrolled, also if it was already with the same key.
    Enrolled(FleetKey),
    /// There is no such invite: it was used or has expired.
    NoInvite,
    /// The invite is for the host of this name.
    OtherHost(String),
    /// This key has the name.
    Taken(FleetKey),
    /// There are this many keys already.
    Full(u64),
}

/// The result of the revocation of the key of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevokedKey {
    /// Whether the host was enrolled.
    pub had_key: bool,
    /// The invites for it that nobody can use any more.
    pub invites: u64,
    /// The requests to it that have ended.
    pub requests: u64,
}

/// A collector that this agent has joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEnrolment {
    /// The URL in the configuration.
    pub url: String,
    /// The public key of the collector.
    pub collector: String,
    /// The name of the host at that time.
    pub host: String,
    /// When it joined.
    pub joined: Timestamp,
}

impl Store {
    /// The seed of the agent's own key. It is random and made at the first use, in a file with mode 0600 that no backup has.
    pub fn fleet_key_seed(&self) -> Result<[u8; KEY_LENGTH], Error> {
        self.fleet_key_file.seed()
    }

    /// Stores an invite, and removes those that have expired. False: there are `most` of them already, or the token of its maker
    /// was revoked.
    pub fn create_fleet_invite(
        &self,
        invite: &FleetInvite,
        most: u64,
        now: Timestamp,
    ) -> Result<bool, Error> {
        let FleetInvite { key, host, invited_by, expires } = invite;
        let actor = to_json(invited_by).map_err(|source| Error::Write { what: WHAT, source })?;
        self.write_twice(WHAT, Durability::Power, |transaction| {
            transaction.execute("DELETE FROM fleet_invites WHERE expires <= ?1", params![to_sql(now.0)])?;
            let open = open_invites(transaction, now)?.len() as u64;
            if open >= most || !may_invite(transaction, invited_by, now)? {
                return Ok(false);
            }
            transaction.execute(
                "INSERT INTO fleet_invites (key, host, invited_by, expires) VALUES (?1, ?2, ?3, ?4)",
                params![key, host, actor, to_sql(expires.0)],
            )?;
            Ok(true)
        })
    }

    /// The invites that can still be used.
    pub fn fleet_invites(&self, now: Timestamp) -> Result<Vec<FleetInvite>, Error> {
        self.read(WHAT, |connection| Ok(open_invites(connection, now)?))
    }

    /// Removes the invite with this id and returns it. `None`: there is none that can still be used.
    pub fn withdraw_fleet_invite(&self, id: &str, now: Timestamp) -> Result<Option<FleetInvite>, Error> {
        self.write_twice(WHAT, Durability::Power, |transaction| {
            // Also one that has expired: it is open again if the clock goes back.
            let found = open_invites(transaction, Timestamp(0))?.into_iter().find(|invite| invite.id() == id);
            if let Some(invite) = &found {
                transaction.execute("DELETE FROM fleet_invites WHERE key = ?1", params![invite.key])?;
            }
            Ok(found.filter(|invite| invite.expires > now))
        })
    }

    /// Whether a host that wants to join has an invite, or is enrolled with its key already. Writes nothing.
    pub fn knows_joining_host(&self, joining: &JoiningHost, now: Timestamp) -> Result<bool, Error> {
        let JoiningHost { host, key, invite, .. } = joining;
        self.read(WHAT, |connection| {
            let query = "SELECT 1 FROM fleet_keys WHERE host = ?1 AND key = ?2";
            let is_enrolled = connection.prepare_cached(query)?.exists(params![host, key])?;
            Ok(is_enrolled || open_invite(connection, invite, now)?.is_some())
        })
    }

    /// Enrols a host with an invite, which is used up by that, or refuses it. At most `most` hosts are enrolled.
    pub fn join_fleet(&self, joining: &JoiningHost, most: u64, now: Timestamp) -> Result<JoinOutcome, Error> {
        self.write_twice(WHAT, Durability::Power, |transaction| join(transaction, joining, most, now))
    }

    /// The keys of all enrolled hosts, by name.
    pub fn fleet_keys(&self) -> Result<Vec<FleetKey>, Error> {
        self.read(WHAT, |connection| {
            let query = format!("SELECT {COLUMNS} FROM fleet_keys ORDER BY host");
            let mut statement = connection.prepare_cached(&query)?;
            Ok(statement.query_map([], fleet_key)?.collect::<Result<_, _>>()?)
        })
    }

    /// The key of an enrolled host.
    pub fn fleet_key(&self, host: &str) -> Result<Option<FleetKey>, Error> {
        self.read(WHAT, |connection| {
            let query = format!("SELECT {COLUMNS} FROM fleet_keys WHERE host = ?1");
            Ok(connection.prepare_cached(&query)?.query_row(params![host], fleet_key).optional()?)
        })
    }

    /// The host that is enrolled with this key.
    pub fn host_of_fleet_key(&self, key: &str) -> Result<Option<String>, Error> {
        self.read(WHAT, |connection| {
            let query = "SELECT host FROM fleet_keys WHERE key = ?1";
            Ok(connection.prepare_cached(query)?.query_row(params![key], |row| row.get(0)).optional()?)
        })
    }

    /// Stores the counter of a signed request. False: a request with this counter or a higher one was there before, or the key
    /// is not that of the host any more.
    pub fn advance_fleet_counter(
        &self,
        host: &str,
        key: &str,
        counter: u64,
        now: Timestamp,
    ) -> Result<bool, Error> {
        // The largest number of the database would be the last one.
        let Ok(counter) = i64::try_from(counter) else { return Ok(false) };
        self.write(WHAT, Durability::Process, |transaction| {
            let advanced = transaction
                .prepare_cached(
                    "UPDATE fleet_keys SET counter = ?3, heard = ?4
                     WHERE host = ?1 AND key = ?2 AND counter < ?3",
                )?
                .execute(params![host, key, counter, to_sql(now.0)])?;
            Ok(advanced > 0)
        })
    }

    /// Removes the key of a host and the invites for it, and ends the requests to it. `None`: there is neither a key nor an
    /// invite.
    pub fn revoke_fleet_key(&self, host: &str, now: Timestamp) -> Result<Option<RevokedKey>, Error> {
        self.write_twice(WHAT, Durability::Power, |transaction| {
            // Those that have expired go as well: they are open again if the clock goes back.
            let mut delete =
                transaction.prepare_cached("DELETE FROM fleet_invites WHERE host = ?1 RETURNING expires")?;
            let ends: Vec<i64> =
                delete.query_map(params![host], |row| row.get(0))?.collect::<Result<_, _>>()?;
            let invites = ends.into_iter().filter(|end| from_sql(*end) > now.0).count();
            let had_key = transaction.execute("DELETE FROM fleet_keys WHERE host = ?1", params![host])? > 0;
            let requests = drop_requests(transaction, host, "the key of the host was revoked", now)?;
            Ok((had_key || invites > 0).then_some(RevokedKey { had_key, invites: invites as u64, requests }))
        })
    }

    /// The collectors that this agent has joined.
    pub fn enrolments(&self) -> Result<Vec<StoredEnrolment>, Error> {
        self.read(WHAT, |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT url, collector, host, joined FROM enrolments WHERE collector <> '' ORDER BY url",
            )?;
            let enrolments = statement.query_map([], |row| {
                Ok(StoredEnrolment {
                    url: row.get(0)?,
                    collector: row.get(1)?,
                    host: row.get(2)?,
                    joined: Timestamp(from_sql(row.get(3)?)),
                })
            })?;
            Ok(enrolments.collect::<Result<_, _>>()?)
        })
    }

    /// Stores that this agent has joined a collector. Counters go on where they were.
    pub fn set_enrolment(&self, enrolment: &StoredEnrolment) -> Result<(), Error> {
        let StoredEnrolment { url, collector, host, joined } = enrolment;
        self.write_twice(WHAT, Durability::Power, |transaction| {
            transaction.execute(
                "INSERT INTO enrolments (url, collector, host, joined, counter) VALUES (?1, ?2, ?3, ?4, 0)
                 ON CONFLICT DO UPDATE SET collector = ?2, host = ?3, joined = ?4",
                params![url, collector, host, to_sql(joined.0)],
            )?;
            Ok(())
        })
    }

    /// Forgets the key of a collector that this agent has left. The counter stays: it must grow if it joins again.
    pub fn forget_enrolment(&self, url: &str) -> Result<(), Error> {
        self.write_twice(WHAT, Durability::Power, |transaction| {
            transaction.execute("UPDATE enrolments SET collector = '' WHERE url = ?1", params![url])?;
            Ok(())
        })
    }

    /// Reserves counters for requests to a collector and returns the first one. None of them was reserved before; they begin with
    /// the time in milliseconds, so that they grow also after an older copy of the database was restored.
    pub fn reserve_fleet_counters(&self, url: &str, count: u64, now: Timestamp) -> Result<u64, Error> {
        self.write_twice(WHAT, Durability::Power, |transaction| {
            let last: i64 = transaction.query_row(
                "SELECT counter FROM enrolments WHERE url = ?1",
                params![url],
                |row| row.get(0),
            )?;
            let first = (from_sql(last) + 1).max(now.0);
            let end = to_sql(first.saturating_add(count - 1));
            transaction.execute("UPDATE enrolments SET counter = ?2 WHERE url = ?1", params![url, end])?;
            Ok(first)
        })
    }
}

fn open_invites(connection: &Connection, now: Timestamp) -> Result<Vec<FleetInvite>, rusqlite::Error> {
    let mut statement = connection.prepare_cached(
        "SELECT key, host, invited_by, expires FROM fleet_invites WHERE expires > ?1 ORDER BY expires",
    )?;
    let mut invites = Vec::new();
    for invite in statement.query_map(params![to_sql(now.0)], fleet_invite)? {
        let invite = invite?;
        if may_invite(connection, &invite.invited_by, now)? {
            invites.push(invite);
        }
    }
    Ok(invites)
}

/// The invite with this key, if it can still be used.
fn open_invite(
    connection: &Connection,
    key: &str,
    now: Timestamp,
) -> Result<Option<FleetInvite>, rusqlite::Error> {
    let query = "SELECT key, host, invited_by, expires FROM fleet_invites WHERE key = ?1 AND expires > ?2";
    let mut statement = connection.prepare_cached(query)?;
    let found = statement.query_row(params![key, to_sql(now.0)], fleet_invite).optional()?;
    match found {
        Some(invite) if may_invite(connection, &invite.invited_by, now)? => Ok(Some(invite)),
        _ => Ok(None),
    }
}

/// Whether invites of this actor can be used: those of a named token end with it.
fn may_invite(connection: &Connection, maker: &Actor, now: Timestamp) -> Result<bool, rusqlite::Error> {
    if maker.kind != ActorKind::Token || maker.name == CONFIGURED_TOKEN {
        return Ok(true);
    }
    let mut statement = connection.prepare_cached("SELECT token FROM tokens WHERE name = ?1")?;
    let text: Option<String> = statement.query_row(params![maker.name], |row| row.get(0)).optional()?;
    let token = text.and_then(|text| readable::<ApiToken>("a token", &text));
    Ok(token.is_some_and(|token| !token.has_expired(now)))
}

fn join(
    transaction: &Transaction<'_>,
    joining: &JoiningHost,
    most: u64,
    now: Timestamp,
) -> Result<JoinOutcome, BoxError> {
    let JoiningHost { host, key, instance, invite } = joining;
    let query = format!("SELECT {COLUMNS} FROM fleet_keys WHERE host = ?1");
    let known = transaction.query_row(&query, params![host], fleet_key).optional()?;
    // The first answer may have been lost.
    if let Some(known) = known.as_ref().filter(|known| known.key == *key) {
        return Ok(JoinOutcome::Enrolled(known.clone()));
    }
    let Some(found) = open_invite(transaction, invite, now)? else { return Ok(JoinOutcome::NoInvite) };
    if let Some(other) = found.host.filter(|other| other != host) {
        return Ok(JoinOutcome::OtherHost(other));
    }
    if let Some(known) = known {
        return Ok(JoinOutcome::Taken(known));
    }
    let enrolled: i64 = transaction.query_row("SELECT COUNT(*) FROM fleet_keys", [], |row| row.get(0))?;
    if from_sql(enrolled) >= most {
        return Ok(JoinOutcome::Full(most));
    }
    transaction.execute("DELETE FROM fleet_invites WHERE key = ?1", params![invite])?;
    // A machine that was renamed has one name.
    let query = "DELETE FROM fleet_keys WHERE key = ?1 RETURNING host";
    let renamed: Option<String> = transaction.query_row(query, params![key], |row| row.get(0)).optional()?;
    if let Some(renamed) = renamed {
        drop_requests(transaction, &renamed, &format!("the host joined as `{host}`"), now)?;
        // Else it is a host that is lost, for which others wait.
        remove_host(transaction, &renamed)?;
    }
    transaction.execute(
        &format!("INSERT INTO fleet_keys ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, 0, NULL)"),
        params![host, key, instance, to_sql(now.0), to_json(&found.invited_by)?],
    )?;
    Ok(JoinOutcome::Enrolled(FleetKey {
        host: host.clone(),
        key: key.clone(),
        instance: instance.clone(),
        enrolled: now,
        invited_by: found.invited_by,
        counter: 0,
        heard: None,
    }))
}

/// An actor whose kind this release does not know is unknown.
fn actor(text: &str) -> Actor {
    readable::<Actor>("an actor", text).unwrap_or_else(|| Actor::new(ActorKind::Unknown, String::new()))
}

fn fleet_key(row: &Row<'_>) -> Result<FleetKey, rusqlite::Error> {
    let (invited_by, heard): (String, Option<i64>) = (row.get(4)?, row.get(6)?);
    Ok(FleetKey {
        host: row.get(0)?,
        key: row.get(1)?,
        instance: row.get(2)?,
        enrolled: Timestamp(from_sql(row.get(3)?)),
        invited_by: actor(&invited_by),
        counter: from_sql(row.get(5)?),
        heard: heard.map(|at| Timestamp(from_sql(at))),
    })
}

fn fleet_invite(row: &Row<'_>) -> Result<FleetInvite, rusqlite::Error> {
    let invited_by: String = row.get(2)?;
    Ok(FleetInvite {
        key: row.get(0)?,
        host: row.get(1)?,
        invited_by: actor(&invited_by),
        expires: Timestamp(from_sql(row.get(3)?)),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{FleetBounds, FleetChange, StoredHost};
    use driftless_clock::Clock;
    use driftless_model::Scope;

    fn invite(key: &str, host: Option<&str>, expires: u64) -> FleetInvite {
        FleetInvite {
            key: key.to_owned(),
            host: host.map(str::to_owned),
            invited_by: Actor::agent(),
            expires: Timestamp(expires),
        }
    }

    fn joining(host: &str, key: &str, invite: &str) -> JoiningHost {
        let [host, key, invite] = [host, key, invite].map(str::to_owned);
        JoiningHost { host, key, instance: "a1".to_owned(), invite }
    }

    fn boss(expires: Option<Timestamp>) -> ApiToken {
        ApiToken {
            name: "boss".to_owned(),
            scopes: vec![Scope::Admin],
            created: Timestamp(1),
            created_by: Actor::agent(),
            expires,
        }
    }

    pub(crate) fn enrol(store: &Store, host: &str, key: &str) {
        assert!(store.create_fleet_invite(&invite(key, None, 100), 9, Timestamp(1)).unwrap());
        let joined = store.join_fleet(&joining(host, key, key), 9, Timestamp(1)).unwrap();
        assert!(matches!(joined, JoinOutcome::Enrolled(_)), "{joined:?}");
    }

    #[test]
    fn invite_enrols_one_host_once() {
        let store = Store::in_memory(Clock::System).unwrap();
        assert!(store.create_fleet_invite(&invite("one", Some("nas"), 100), 2, Timestamp(1)).unwrap());
        assert!(store.create_fleet_invite(&invite("two", None, 10), 2, Timestamp(1)).unwrap());
        assert!(!store.create_fleet_invite(&invite("three", None, 100), 2, Timestamp(1)).unwrap());
        let join = |host: &str, key: &str, invite: &str, now| {
            let joining = joining(host, key, invite);
            let is_known = store.knows_joining_host(&joining, Timestamp(now)).unwrap();
            let outcome = store.join_fleet(&joining, 2, Timestamp(now)).unwrap();
            assert_eq!(is_known, outcome != JoinOutcome::NoInvite);
            outcome
        };
        assert_eq!(join("web", "w", "one", 5), JoinOutcome::OtherHost("nas".to_owned()));
        assert_eq!(join("web", "w", "none", 5), JoinOutcome::NoInvite);
        assert_eq!(join("web", "w", "two", 10), JoinOutcome::NoInvite, "it has expired");
        let JoinOutcome::Enrolled(key) = join("nas", "n", "one", 5) else { panic!() };
        assert_eq!((key.host.as_str(), key.key.as_str(), key.counter), ("nas", "n", 0));
        assert_eq!(join("nas", "n", "one", 6), JoinOutcome::Enrolled(key.clone()), "the answer was lost");
        assert_eq!(join("tv", "t", "one", 6), JoinOutcome::NoInvite, "it is used up");
        assert!(store.create_fleet_invite(&invite("four", None, 100), 2, Timestamp(10)).unwrap());
        assert_eq!(join("nas", "other", "four", 11), JoinOutcome::Taken(key));
        assert_eq!(store.fleet_invites(Timestamp(11)).unwrap(), [invite("four", None, 100)]);
        assert_eq!(
            store.join_fleet(&joining("tv", "t", "four"), 1, Timestamp(11)).unwrap(),
            JoinOutcome::Full(1)
        );
        assert!(store.create_fleet_invite(&invite("five", Some("nas"), 100), 9, Timestamp(11)).unwrap());
        let revoked = RevokedKey { had_key: true, invites: 1, requests: 0 };
        assert_eq!(store.revoke_fleet_key("nas", Timestamp(11)).unwrap(), Some(revoked));
        assert_eq!(store.revoke_fleet_key("nas", Timestamp(11)).unwrap(), None);
        assert_eq!(store.fleet_key("nas").unwrap(), None);
        assert_eq!(join("nas", "other", "five", 12), JoinOutcome::NoInvite, "revoked as well");
        assert!(matches!(join("nas", "other", "four", 12), JoinOutcome::Enrolled(_)));
    }

    #[test]
    fn revocation_before_the_join_drops_the_invites() {
        let store = Store::in_memory(Clock::System).unwrap();
        assert!(store.create_fleet_invite(&invite("one", Some("tv"), 100), 9, Timestamp(1)).unwrap());
        let revoked = RevokedKey { had_key: false, invites: 1, requests: 0 };
        assert_eq!(store.revoke_fleet_key("tv", Timestamp(2)).unwrap(), Some(revoked));
        assert_eq!(store.fleet_invites(Timestamp(2)).unwrap(), []);
        assert_eq!(store.revoke_fleet_key("tv", Timestamp(2)).unwrap(), None);
    }

    #[test]
    fn dropped_invite_stays_so_if_the_clock_goes_back() {
        let store = Store::in_memory(Clock::System).unwrap();
        let (first, second) = (invite("one", Some("tv"), 10), invite("two", None, 10));
        for invite in [&first, &second] {
            assert!(store.create_fleet_invite(invite, 9, Timestamp(1)).unwrap());
        }
        assert_eq!(store.revoke_fleet_key("tv", Timestamp(11)).unwrap(), None, "it has expired");
        assert_eq!(store.withdraw_fleet_invite(&second.id(), Timestamp(11)).unwrap(), None);
        assert_eq!(store.fleet_invites(Timestamp(9)).unwrap(), []);
        for key in ["one", "two"] {
            let joined = store.join_fleet(&joining("tv", "t", key), 9, Timestamp(9)).unwrap();
            assert_eq!(joined, JoinOutcome::NoInvite);
        }
    }

    #[test]
    fn open_invite_can_be_withdrawn() {
        let store = Store::in_memory(Clock::System).unwrap();
        let (first, second) = (invite("one", None, 100), invite("two", Some("nas"), 10));
        for invite in [&first, &second] {
            assert!(store.create_fleet_invite(invite, 9, Timestamp(1)).unwrap());
        }
        assert_ne!(first.id(), second.id());
        let withdraw =
            |invite: &FleetInvite, now| store.withdraw_fleet_invite(&invite.id(), Timestamp(now)).unwrap();
        assert_eq!(withdraw(&second, 10), None, "it has expired");
        assert_eq!(withdraw(&first, 10), Some(first.clone()));
        assert_eq!(withdraw(&first, 10), None);
        let joined = store.join_fleet(&joining("web", "w", "one"), 9, Timestamp(10)).unwrap();
        assert_eq!(joined, JoinOutcome::NoInvite);
    }

    #[test]
    fn open_invites_end_with_the_token_of_their_maker() {
        let store = Store::in_memory(Clock::System).unwrap();
        store.create_token(&boss(None)).unwrap().unwrap();
        for (key, kind) in [("one", ActorKind::Token), ("two", ActorKind::User)] {
            let invited_by = Actor::new(kind, "boss");
            let made = FleetInvite { invited_by, ..invite(key, None, 100) };
            assert!(store.create_fleet_invite(&made, 9, Timestamp(1)).unwrap());
        }
        assert_eq!(store.revoke_token("boss").unwrap(), Some(1));
        assert_eq!(store.revoke_token("boss").unwrap(), None);
        let left: Vec<String> =
            store.fleet_invites(Timestamp(2)).unwrap().into_iter().map(|invite| invite.key).collect();
        assert_eq!(left, ["two"], "a person of this name is somebody else");
    }

    #[test]
    fn revoked_or_expired_token_invites_no_host() {
        let store = Store::in_memory(Clock::System).unwrap();
        let made_by = |name: &str, key: &str| FleetInvite {
            invited_by: Actor::new(ActorKind::Token, name),
            ..invite(key, None, 100)
        };
        let create = |invite: &FleetInvite| store.create_fleet_invite(invite, 9, Timestamp(1)).unwrap();
        store.create_token(&boss(None)).unwrap().unwrap();
        store.revoke_token("boss").unwrap().unwrap();
        assert!(!create(&made_by("boss", "late")), "the request began before the revocation");
        assert!(create(&made_by(CONFIGURED_TOKEN, "configured")));
        // An older release has stored it.
        let stored = store.write(WHAT, Durability::Process, |transaction| {
            let insert = "INSERT INTO fleet_invites (key, invited_by, expires) VALUES ('old', ?1, 100)";
            Ok(transaction.execute(insert, params![to_json(&made_by("boss", "old").invited_by)?])?)
        });
        assert_eq!(stored.unwrap(), 1);
        let open = |now| -> Vec<String> {
            let invites = store.fleet_invites(Timestamp(now)).unwrap();
            invites.into_iter().map(|invite| invite.key).collect()
        };
        let uses_old = |now| {
            let joining = joining("web", "w", "old");
            let is_known = store.knows_joining_host(&joining, Timestamp(now)).unwrap();
            is_known || store.join_fleet(&joining, 9, Timestamp(now)).unwrap() != JoinOutcome::NoInvite
        };
        assert_eq!(open(2), ["configured"]);
        assert!(!uses_old(2));
        // Another token gets the name, and ends before its invite.
        store.create_token(&boss(Some(Timestamp(50)))).unwrap().unwrap();
        assert_eq!(open(2), ["configured"], "it is not that of the new token");
        assert!(!uses_old(2));
        assert!(create(&made_by("boss", "new")));
        assert_eq!((open(49).len(), open(50)), (2, vec!["configured".to_owned()]));
    }

    #[test]
    fn renamed_machine_gives_its_first_name_back() {
        let store = Store::in_memory(Clock::System).unwrap();
        enrol(&store, "nas", "n");
        let report = StoredHost {
            name: "nas".to_owned(),
            instance: "a1".to_owned(),
            digest: "d".to_owned(),
            received: Timestamp(1),
            report: "{}".to_owned(),
            conflict: None,
        };
        let bounds = FleetBounds { hosts: 9, bytes: 1000 };
        let stored =
            store.change_fleet_host("nas", bounds, |_| (FleetChange::Report(report), Vec::new(), ()));
        stored.unwrap().unwrap();
        assert!(store.create_fleet_invite(&invite("two", None, 100), 9, Timestamp(1)).unwrap());
        store.join_fleet(&joining("attic", "n", "two"), 9, Timestamp(1)).unwrap();
        assert_eq!(store.fleet_host("nas").unwrap(), None, "no host that is lost");
        assert_eq!(store.host_of_fleet_key("n").unwrap().as_deref(), Some("attic"));
        assert_eq!(store.fleet_key("nas").unwrap(), None);
    }

    #[test]
    fn counter_of_a_host_only_grows() {
        let store = Store::in_memory(Clock::System).unwrap();
        enrol(&store, "nas", "n");
        let advance =
            |host, key, counter| store.advance_fleet_counter(host, key, counter, Timestamp(7)).unwrap();
        assert!(advance("nas", "n", 5));
        assert!(!advance("nas", "n", 5) && !advance("nas", "n", 4));
        assert!(!advance("nas", "other", 6) && !advance("web", "n", 6));
        assert!(!advance("nas", "n", u64::MAX));
        assert!(advance("nas", "n", 6));
        let key = store.fleet_key("nas").unwrap().unwrap();
        assert_eq!((key.counter, key.heard), (6, Some(Timestamp(7))));
    }

    #[test]
    fn reserved_counters_are_never_given_twice() {
        let store = Store::in_memory(Clock::System).unwrap();
        assert!(store.reserve_fleet_counters("http://hub", 10, Timestamp(1)).is_err(), "not joined");
        let mut enrolment = StoredEnrolment {
            url: "http://hub".to_owned(),
            collector: "c".to_owned(),
            host: "nas".to_owned(),
            joined: Timestamp(1),
        };
        store.set_enrolment(&enrolment).unwrap();
        let reserve = |now| store.reserve_fleet_counters("http://hub", 10, Timestamp(now)).unwrap();
        assert_eq!((reserve(1000), reserve(1000)), (1000, 1010));
        assert_eq!(reserve(1), 1020, "the clock was put back");
        enrolment.collector = "d".to_owned();
        store.set_enrolment(&enrolment).unwrap();
        assert_eq!(reserve(1), 1030, "it joined again");
        assert_eq!(store.enrolments().unwrap(), [enrolment.clone()]);
        store.forget_enrolment("http://hub").unwrap();
        assert_eq!(store.enrolments().unwrap(), []);
        store.set_enrolment(&enrolment).unwrap();
        assert_eq!(reserve(1), 1040, "it left and joined again");
    }
}
