//! The rule of `docs/masking.md`: every place hides a planted value of any length, and innocent text stays as it is.

use proptest::prelude::*;

use super::*;

fn mask() -> Mask {
    Mask::new([7; 32])
}

/// Texts in which `§` is a secret.
const TEXTS: &[&str] = &[
    "postgres://app:§@db:5432/app",
    "postgres://app:§/x@db:5432/app",
    "smtp://user:p@§/word@host",
    "https://§@github.com/a/b",
    "redis://:§@cache,redis://:§@other",
    "jdbc:postgresql://db/app?user=a&password=§",
    "jdbc:postgresql://db/app?password=§&user=a",
    "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=§;EndpointSuffix=x",
    "Server=db;User Id=sa;Password=§;",
    "Server=db;Password='§ §';",
    "host=db user=a password=§ dbname=x",
    "{\"password\":\"§\"}",
    "{\"user\": \"a\", \"clientSecret\" : \"§\\\"§\", \"n\": 1}",
    "{\\\"password\\\":\\\"§\\\"}",
    "{'token': '§'}",
    "smtp:\n  password: §\n  port: 25\n",
    "password: '§'\n",
    "Authorization: Bearer §",
    "requirepass §\nmaxmemory 1gb",
    "authentication {\n  auth_type PASS\n  auth_pass §\n}",
    "gotify://gotify.example.com/§",
    "discord://§@1234567,telegram://§@telegram?chats=1",
    "redis-server --requirepass §",
    "redis-cli -a § ping",
    "sh -c 'redis-cli -a § ping | grep PONG'",
    "mysqladmin ping -p§",
    "mysqladmin ping -u root -p§ -h db",
    "mysql -p'§' shop",
    "PGPASSWORD=§ psql -h db",
    "env PGPASSWORD='§' psql -h db",
    "sshpass -p § ssh host",
    "curl -u admin:§ http://x/",
    "curl -fs -H 'X-Api-Key: §' http://x/",
    "curl -fs -H \"Authorization: Basic §\" http://x/",
    "curl --token=§ host",
    "psql --password § -h db",
    "app --db-pass § --verbose",
    "ALTER USER a WITH PASSWORD '§'",
    "CREATE USER a IDENTIFIED BY '§'",
    "app -p§",
    "mkdir -p /data && mysql -p§",
    "https://x.blob.core.windows.net/c?sv=2024&sig=§&se=1",
    "<server><user>a</user><password>§</password></server>",
    "<password><![CDATA[§]]></password>",
    "ENCRYPTIONKEY=§",
    "masterkey: '§'",
];

/// Argument lists in which `§` is a secret.
const ARGUMENTS: &[&[&str]] = &[
    &["redis-server", "--requirepass", "§"],
    &["redis-server", "--requirepass", "§ §"],
    &["app", "--password=§ §"],
    &["app", "--api-key", "§"],
    &["CMD", "redis-cli", "-a", "§", "ping"],
    &["CMD-SHELL", "redis-cli -a § ping"],
    &["CMD-SHELL", "mysqladmin ping -uroot -p§"],
    &["sh", "-c", "exec app --token §"],
    &["-p§"],
    &["-p", "§"],
    &["/usr/bin/mysql", "-p§"],
    &["curl", "-u", "me:§", "http://x"],
    &["app", "amqp://a:§@mq/"],
];

/// Names whose value is hidden as a whole.
const NAMES: &[&str] = &[
    "DB_PASSWORD",
    "DB_PW",
    "PGPASS",
    "SLACK_WEBHOOK",
    "APP_KEY",
    "x.basicauth.users",
    "api_token",
    "MYSQL_PASSWORD_FILE",
];

/// Texts that hold no secret.
const INNOCENT: &[&str] = &[
    "https://example.com/a",
    "http://gotify:80/mail?to=admin@example.com",
    "https://medium.com/@someone/post",
    "http://host:8080/@someone",
    "ssh://git@github.com/a/b.git",
    "Host(`auth.example.com`) && PathPrefix(`/token`)",
    "registry.example.com/token:5432",
    "find / -path /proc -prune -o -print",
    "mkdir -p data && cp -p a b && ssh -p 22 host",
    "docker run -p 8080:80 nginx",
    "psql -p 5432 --no-password shop",
    "nc -z localhost 5432",
    "curl -fsS http://localhost:8080/health || exit 1",
    "exec app --password \"$DB_PASSWORD\"",
    "PGPASSWORD=${DB_PASSWORD} psql",
    "chown 1000:1000 /data",
    "--user 1000:1000",
    "a=b;c=d&e=f",
    "key_buffer_size=16M",
    "AUTHOR=me AUTHENTIK_HOST=auth.example.com",
    "redis-server --appendonly yes --save 60 1",
    "postgres -c shared_buffers=256MB -c max_connections=200",
    "sk-learn is a library",
    "tokens are described in the docs",
];

fn planted(text: &str, secret: &str) -> String {
    text.replace('§', secret)
}

proptest! {
    #[test]
    fn secrets_are_hidden_in_every_place(secret in "[A-Za-z][A-Za-z0-9]{2,59}") {
        // A value like this one says nothing.
        prop_assume!(!is_no_secret(&secret));
        let secret = format!("Q{secret}Z");
        let mask = mask();
        for text in TEXTS {
            let text = planted(text, &secret);
            for shown in [mask.text(&text), mask.value("NOTES", &text)] {
                prop_assert!(!shown.contains(&secret) && shown.contains(MARK), "{text} is shown as {shown}");
                prop_assert_eq!(mask.text(&shown), shown.clone(), "a second time");
            }
        }
        for arguments in ARGUMENTS {
            let arguments: Vec<String> = arguments.iter().map(|text| planted(text, &secret)).collect();
            let shown = mask.arguments(&arguments).join(" ");
            prop_assert!(!shown.contains(&secret) && shown.contains(MARK), "{arguments:?} is shown as {shown}");
        }
        for name in NAMES {
            prop_assert_eq!(mask.value(name, &secret), mask.hide(&secret), "{}", name);
        }
    }

    #[test]
    fn known_values_are_hidden_as_words_only(secret in "[a-z][a-z0-9]{2,10}") {
        let mask = mask().with_variables([("DB_PASSWORD", secret.as_str())]);
        prop_assume!(!is_no_secret(&secret));
        for text in ["run §", "a=§", "'§'", "x:§@y", "(§)", "§.", "/§/"] {
            let shown = mask.text(&planted(text, &secret));
            prop_assert!(!shown.contains(&secret), "{text}: {shown}");
        }
        for text in ["x§", "§x", "my-§-app", "a_§", "9§"] {
            let text = planted(text, &secret);
            prop_assert_eq!(mask.text(&text), text);
        }
        let name = format!("{secret}:30-fpm");
        prop_assert_eq!(mask.name(&name), name);
    }

    #[test]
    fn innocent_text_stays_as_it_is(secret in "[A-Za-z0-9]{3,60}", index in 0..INNOCENT.len()) {
        let text = INNOCENT[index];
        let mask = mask().with_variables([("DB_PASSWORD", secret.as_str())]);
        prop_assume!(occurrences(text, &secret).next().is_none());
        prop_assert_eq!(mask.text(text), text);
        prop_assert_eq!(mask.message(text), text);
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        prop_assert_eq!(mask.arguments(&words), words);
    }

    #[test]
    fn any_text_can_be_masked(text in "[ -~•é\n$'\"=:@/\\\\-]{0,80}") {
        let mask = mask().with_variables([("TOKEN", "abc")]);
        let shown = mask.text(&text);
        prop_assert_eq!(mask.text(&shown), mask.text(&mask.text(&shown)));
        let _ = (mask.message(&text), mask.command(&text), mask.name(&text), mask.arguments(&[text]));
    }
}

#[test]
fn tokens_and_keys_are_known_by_their_form() {
    for secret in [
        "ghp_0123456789abcdefghijABCDEFGHIJ012345",
        "glpat-abcdefghij0123456789",
        "AKIAIOSFODNN7EXAMPLE",
        "hvs.CAESIJabcdefghij0123456789",
        "SG.abcdefghij0123456789AB.abcdefghij0123456789abcdefghij01234567",
        "https://api.telegram.org/bot123456789:AAabcdefghij0123456789abcdefghijk/sendMessage",
        "Bearer abcdefghij0123456789",
        "xoxb-1234567890-abcdefgh",
        "https://hooks.slack.com/services/T000/B000/XXXXXXXX",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
        "admin:$apr1$abcdefgh$0123456789012345678901",
        "admin:$$2y$$05$$0123456789012345678901",
        "a:{SHA}0123456789012345678901",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIVATE KEY-----",
    ] {
        let shown = mask().text(&format!("see {secret} there"));
        let core = secret.get(secret.len() / 2..secret.len() / 2 + 8).unwrap();
        assert!(shown.contains(MARK) && !shown.contains(core), "{secret} is shown as {shown}");
        assert!(shown.starts_with("see ") && shown.ends_with(" there"), "{shown}");
    }
}

#[test]
fn command_is_shown_on_one_line_and_cut() {
    let mask = mask();
    assert_eq!(mask.command("sh -c  'touch /etc/x'"), "sh -c 'touch /etc/x'");
    assert_eq!(mask.command(&"é".repeat(500)).chars().count(), 101);
    let shown = mask.command("mysql -phunter2 shop");
    assert_eq!(shown, format!("mysql -p{} shop", mask.hide("hunter2")));
}

#[test]
fn equal_values_have_equal_masks() {
    let mask = mask();
    assert_eq!(mask.value("DB_PASSWORD", "hunter2"), mask.hide("hunter2"));
    assert_ne!(mask.hide("hunter2"), mask.hide("hunter3"));
    assert_eq!(mask.value("GREETING", "hello"), "hello");
    let knowing = mask.with_names(&["GREETING".to_owned()]);
    assert_eq!(knowing.value("GREETING", "hello"), mask.hide("hello"));
    assert_eq!(mask.text("postgres://a:hunter2@db/x"), format!("postgres://a:{}@db/x", mask.hide("hunter2")));
}

#[test]
fn sentences_keep_their_words() {
    let mask = mask();
    for text in [
        "pull access denied: password: authentication failed",
        "invalid token: unexpected end of input",
        "no such image: nextcloud:30",
        "it is not set (`validate` takes `--variable DB_PASSWORD=…`); write `${DB_PASSWORD:-}` if it may be empty",
    ] {
        assert_eq!(mask.message(text), text);
    }
    assert!(!mask.message("DB_PASSWORD=…hunter2 is wrong").contains("hunter2"));
    let shown = mask
        .message("exec failed: \"redis-cli -a hunter2 ping\": {\"password\": \"hunter2\"} x://u:hunter2@h");
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn output_is_shown_without_assigned_secrets() {
    let mask = mask().with_secret_values(["geheim4711"]);
    for line in [
        "cannot log in with geheim4711",
        "DB_PASSWORD=hunter2 is wrong",
        "{\"token\": \"hunter2\"}",
        "password: hunter2",
        "postgres://shop:hunter2@db/shop is down",
    ] {
        let shown = mask.output(line);
        assert!(!shown.contains("hunter2") && !shown.contains("geheim4711"), "{shown}");
    }
    let plain = "error: cannot open /etc/app.conf: no such file\nexit = 3";
    assert_eq!(mask.output(plain), plain);
}

#[test]
fn lines_of_mounted_secrets_are_hidden_except_short_ones() {
    let mask = mask().with_public_names(["nextcloud:30"]);
    let mask = mask.with_secret_lines([" Tr0ub4dor-9\n", "admin", "nextcloud"]);
    let shown = mask.output("admin of nextcloud cannot log in with Tr0ub4dor-9");
    assert_eq!(shown, format!("admin of nextcloud cannot log in with {}", mask.hide("Tr0ub4dor-9")));
}

#[test]
fn passwords_in_urls_of_variables_are_hidden_elsewhere() {
    let url = "postgres://shop:p%40ss4711@db/shop";
    let mask = mask().with_variables([("DATABASE_URL", url)]);
    for text in ["login of shop with p@ss4711 failed", "tried p%40ss4711", "run p@ss4711"] {
        let shown = mask.output(text);
        assert!(!shown.contains("ss4711") && shown.contains(MARK), "{text} is shown as {shown}");
    }
    assert_eq!(mask.output("the shop is open"), "the shop is open");
}

#[test]
fn values_are_hidden_however_a_url_encodes_them() {
    let mask = mask().with_secret_values(["a/b(c)!é"]);
    for text in ["a%2Fb%28c%29%21%C3%A9", "a%2fb%28c%29%21%c3%a9", "a%2Fb(c)!%C3%A9", "a/b(c)!é"] {
        let shown = mask.output(&format!("GET /?q={text} failed"));
        assert!(!shown.contains(text) && shown.contains(MARK), "{text} is shown as {shown}");
    }
}

#[test]
fn codes_can_be_left_out() {
    let shown = Mask::without_codes().message("use https://me:hunter2@git.example.com");
    assert_eq!(shown, format!("use https://me:{MARK}@git.example.com"));
}

/// Each beginning of a secret would be followed to the end of the text otherwise, which takes minutes.
#[test]
fn secret_after_many_beginnings_is_hidden() {
    for beginning in ["://", "eyJ.", "AKIA.", "x://a@"] {
        let text = format!("{} x://app:hunter2hunter@db", beginning.repeat(250_000));
        let shown = mask().text(&text);
        assert!(!shown.contains("hunter2hunter") && shown.ends_with("@db"), "{beginning}");
    }
}
