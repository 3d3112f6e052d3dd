//! Published ports: the agent's proxy compared with haproxy, nginx and the engine's own ways, under the same load.

use std::{
    collections::BTreeSet,
    fs,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use tokio::{net::TcpStream, time::sleep};

use crate::{
    few,
    harness::{Docker, Site, free_port, wait_until},
    load::{self, PORT},
    process,
    report::{Report, megabytes, ratio_text, time},
};

/// Clients at the same time, for new connections and for kept ones.
const CLIENTS: usize = 32;
/// New connections of a sample.
const CONNECTIONS: usize = 6000;
/// The time of a sample of requests on kept connections.
const REQUESTS: Duration = Duration::from_millis(1000);
/// The length of a large answer, and how many there are at the same time.
const BODY: u64 = 256 * 1024 * 1024;
const BODIES: usize = 4;
/// Idle connections whose memory is measured.
const IDLE: usize = 2000;
/// Time after which memory that is free was given back.
const GIVEN_BACK: Duration = Duration::from_secs(3);
const GIB: f64 = (1u64 << 30) as f64;
/// The instances behind each proxy.
const INSTANCES: usize = 2;

/// One way to the instances.
struct Way {
    name: &'static str,
    address: SocketAddr,
    process: Processes,
    is_peer: bool,
    found: Found,
}

/// The processes that carry the connections.
enum Processes {
    /// All of a container.
    Container(String),
    /// The engine's process for a port.
    DockerProxy(u16),
    /// The kernel does it.
    None,
}

/// Some samples of a way.
type Values = fn(&Found) -> &[f64];

/// The samples of one way.
#[derive(Default)]
struct Found {
    connections: Vec<f64>,
    connection_cpu: Vec<f64>,
    requests: Vec<f64>,
    request_cpu: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
    bytes: Vec<f64>,
    byte_cpu: Vec<f64>,
    idle: Vec<f64>,
    before: u64,
    during: u64,
    after: u64,
}

pub async fn proxy(report: &mut Report) {
    let mut site = Site::new("bench-proxy");
    let image = format!("{}-server", site.app);
    let context = site.directory().join("server");
    let server = Files { program: std::env::current_exe().unwrap(), more: Vec::new() };
    server.build(&site.docker, &context, &image, &["BENCH_CHILD=server"]);
    let [ours, direct] = [free_port(), free_port()];
    // A debug build of the same source makes an image of the same name. That of the measured program is made again.
    let _ = site.docker.attempt(&["rmi", "--force", driftless_model::PROXY_IMAGE]);
    let agent = site
        .running(&format!(
            "services:
  web: {{image: '{image}', scale: {INSTANCES}, ports: ['{ours}:{PORT}']}}
  direct: {{image: '{image}', ports: ['{direct}:{PORT}']}}
"
        ))
        .await;
    let web = site.of("web");
    let network = web[0].networks().remove(0);
    let gateway = "{{range .IPAM.Config}}{{.Gateway}}{{end}}";
    let gateway: IpAddr =
        site.docker.run(&["network", "inspect", "-f", gateway, &network]).parse().expect("an address");
    let servers: Vec<String> = web.iter().filter_map(|it| it.address()).collect();
    assert_eq!(servers.len(), INSTANCES);
    // The proxy needs none.
    drop(agent);

    let way =
        |name, address, process, is_peer| Way { name, address, process, is_peer, found: Found::default() };
    let worker = site.container("web_proxy_worker").id();
    let mut ways = vec![way(OURS, (gateway, ours).into(), Processes::Container(worker), false)];
    let mut missing = Vec::new();
    for peer in [haproxy(&servers), nginx(&servers)] {
        let Some(files) = &peer.files else {
            missing.push(peer.name);
            continue;
        };
        let (port, name) = (free_port(), site.foreign(peer.name));
        peer.run(&site.docker, files, &site.directory(), &name, &network, port);
        ways.push(way(peer.name, (gateway, port).into(), Processes::Container(name), true));
    }
    ways.push(way("iptables", (gateway, direct).into(), Processes::None, false));
    let loopback = IpAddr::from([127, 0, 0, 1]);
    ways.push(way("docker-proxy", (loopback, direct).into(), Processes::DockerProxy(direct), false));

    for way in &ways {
        wait_until(&format!("{} answers", way.name), || {
            std::net::TcpStream::connect_timeout(&way.address, Duration::from_secs(1)).ok()
        })
        .await;
        // Caches and threads are warm, and the memory before is that of a proxy at work.
        load::connections(way.address, CONNECTIONS / 10, CLIENTS).await;
        load::requests(way.address, REQUESTS / 5, CLIENTS).await;
    }
    for way in &mut ways {
        way.hold_idle(&site.docker).await;
    }
    for _ in 0..few() {
        for way in &mut ways {
            way.sample(&site.docker).await;
        }
    }
    let _ = site.docker.attempt(&["rmi", "-f", &image]);
    write(report, &ways, &missing);
}

const OURS: &str = "driftless proxy";

impl Way {
    async fn sample(&mut self, docker: &Docker) {
        let processes = self.process.ids(docker);
        let cpu = || processes.iter().map(|it| process::cpu_of_threads(*it)).sum::<Duration>().as_secs_f64();
        let found = &mut self.found;

        let before = cpu();
        let connections = load::connections(self.address, CONNECTIONS, CLIENTS).await;
        found.connections.push(connections.rate);
        found.connection_cpu.push((cpu() - before) / connections.count as f64);

        let before = cpu();
        let requests = load::requests(self.address, REQUESTS, CLIENTS).await;
        found.requests.push(requests.rate);
        found.request_cpu.push((cpu() - before) / requests.count as f64);
        found.p50.push(requests.times.median().as_secs_f64());
        found.p99.push(requests.times.percentile(99).as_secs_f64());

        let before = cpu();
        let bytes = load::bodies(self.address, BODY, BODIES).await;
        found.bytes.push(bytes);
        found.byte_cpu.push((cpu() - before) / ((BODY * BODIES as u64) as f64 / GIB));
    }

    /// The memory with many idle connections, and after they were closed.
    async fn hold_idle(&mut self, docker: &Docker) {
        let processes = self.process.ids(docker);
        if processes.is_empty() {
            return;
        }
        let memory = || processes.iter().map(|it| process::memory(*it).private).sum::<u64>();
        self.found.before = memory();
        let streams: Vec<TcpStream> = load::idle(self.address, IDLE, CLIENTS).await;
        sleep(GIVEN_BACK).await;
        self.found.during = memory();
        self.found
            .idle
            .push(self.found.during.saturating_sub(self.found.before) as f64 / streams.len() as f64);
        drop(streams);
        sleep(GIVEN_BACK).await;
        self.found.after = memory();
    }
}

impl Processes {
    fn ids(&self, docker: &Docker) -> Vec<u32> {
        match self {
            Self::Container(name) => {
                let text = docker.run(&["top", name, "-o", "pid"]);
                text.lines().filter_map(|line| line.trim().parse().ok()).collect()
            }
            Self::DockerProxy(port) => {
                let wanted = format!("-host-port\0{port}\0");
                let all = fs::read_dir("/proc").unwrap().flatten();
                let all = all.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
                let is_it = |id: &u32| {
                    let command = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
                    let command = String::from_utf8_lossy(&command).into_owned();
                    command.contains("docker-proxy")
                        && command.contains(&wanted)
                        && command.contains("0.0.0.0")
                };
                all.filter(is_it).collect()
            }
            Self::None => Vec::new(),
        }
    }
}

/// A proxy that is compared with ours.
struct Peer {
    name: &'static str,
    files: Option<Files>,
    configuration: String,
    command: &'static [&'static str],
}

/// The path of a configuration in its container.
const CONFIGURATION: &str = "/proxy.conf";

impl Peer {
    /// Starts it in a container in the instances' network, with a published port, as the agent's proxy.
    fn run(&self, docker: &Docker, files: &Files, directory: &Path, name: &str, network: &str, port: u16) {
        files.build(docker, &directory.join(self.name), name, &[]);
        let file = directory.join(format!("{}.conf", self.name));
        fs::write(&file, &self.configuration).unwrap();
        let (volume, port) = (format!("{}:{CONFIGURATION}:ro", file.display()), format!("{port}:80"));
        let words = ["run", "-d", "--name", name, "--network", network, "-p", &port, "-v", &volume, name];
        docker.run(&[&words[..], self.command].concat());
    }
}

/// haproxy in TCP mode with a thread for each core, and `splice` for large transfers.
fn haproxy(servers: &[String]) -> Peer {
    let mut configuration = "global
    maxconn 6000
defaults
    mode tcp
    option splice-auto
    timeout connect 1s
    timeout client 1h
    timeout server 1h
listen web
    bind :::80 v4v6
    balance leastconn
"
    .to_owned();
    for (number, server) in servers.iter().enumerate() {
        configuration.push_str(&format!("    server web{number} {server}:{PORT}\n"));
    }
    let files = installed("haproxy").map(|program| Files { program, more: Vec::new() });
    Peer { name: "haproxy", files, configuration, command: &["-db", "-f", CONFIGURATION] }
}

/// nginx with a process for each core, which have a listening socket each.
fn nginx(servers: &[String]) -> Peer {
    const STREAM: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";
    let servers: String = servers.iter().map(|it| format!("server {it}:{PORT}; ")).collect();
    let (load, more) = match Path::new(STREAM).exists() {
        true => (format!("load_module {STREAM};"), vec![PathBuf::from(STREAM)]),
        false => (String::new(), Vec::new()),
    };
    let configuration = format!(
        "{load}
user root root;
worker_processes auto;
pid /nginx.pid;
error_log stderr;
events {{ worker_connections 8000; }}
stream {{
    upstream web {{ least_conn; {servers}}}
    server {{
        listen 80 reuseport backlog=4096;
        proxy_connect_timeout 1s;
        proxy_timeout 1h;
        proxy_pass web;
    }}
}}
"
    );
    let files = installed("nginx").map(|program| Files { program, more });
    let command = &["-e", "stderr", "-c", CONFIGURATION, "-g", "daemon off;"];
    Peer { name: "nginx", files, configuration, command }
}

fn installed(program: &str) -> Option<PathBuf> {
    let folders = ["/usr/sbin", "/usr/local/sbin", "/usr/bin", "/usr/local/bin"];
    folders.iter().map(|folder| Path::new(folder).join(program)).find(|path| path.exists())
}

/// A program, and what else it needs.
struct Files {
    program: PathBuf,
    more: Vec<PathBuf>,
}

impl Files {
    /// An image of nothing but the program and the libraries that it is linked to.
    fn build(&self, docker: &Docker, context: &Path, image: &str, environment: &[&str]) {
        let mut files: BTreeSet<PathBuf> = self.more.iter().cloned().collect();
        for file in self.more.iter().chain([&self.program]) {
            let output = Command::new("ldd").arg(file).output().expect("ldd can be run");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let paths = text.split_whitespace().filter(|word| word.starts_with('/'));
            files.extend(paths.map(PathBuf::from));
        }
        for file in files {
            let to = context.join(file.strip_prefix("/").unwrap());
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(&file, &to).unwrap();
        }
        fs::copy(&self.program, context.join("program")).unwrap();
        fs::create_dir_all(context.join("etc")).unwrap();
        fs::write(context.join("etc/passwd"), "root:x:0:0:root:/:/bin/sh\n").unwrap();
        fs::write(context.join("etc/group"), "root:x:0:\n").unwrap();
        let environment: String = environment.iter().map(|it| format!("ENV {it}\n")).collect();
        let text = format!("FROM scratch\nCOPY . /\n{environment}ENTRYPOINT [\"/program\"]\n");
        fs::write(context.join("Dockerfile"), text).unwrap();
        docker.run(&["build", "-q", "-t", image, &context.display().to_string()]);
    }
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn seconds(value: f64) -> String {
    if value.is_finite() { time(Duration::from_secs_f64(value.max(0.0))) } else { String::new() }
}

fn write(report: &mut Report, ways: &[Way], missing: &[&str]) {
    report.section("Proxy of published ports");
    report.text(&format!(
        "A Compose service of {INSTANCES} instances, whose port the agent's proxy publishes, in its two containers. haproxy in \
         TCP mode and nginx with `stream` run in a container in the same network with a published port, and forward to \
         the same instances, each with as many threads or processes as there are cores. The engine's own ways lead to one \
         instance: `iptables` alone, and `docker-proxy` for connections to the loopback address. The client runs on the host \
         and connects to an address of the host, with {CLIENTS} connections at the same time; client, proxy and instances \
         share the cores. The samples of all ways alternate; medians of {} are given. A new connection is one request and its answer of \
         64 bytes; so are the requests on kept connections. Large bodies are {BODIES} answers of {} MiB at the same time. \
         Processor time is that of the proxy's processes. Idle memory is the private memory that {IDLE} connections \
         add which have had one answer.",
        ways[0].found.connections.len(),
        BODY >> 20,
    ));
    for name in missing {
        report.text(&format!("{name} is not installed and could not be fetched, so its rows are missing."));
    }
    report.table(&[
        "way",
        "new connections/s",
        "CPU each",
        "kept requests/s",
        "CPU each",
        "p50",
        "p99",
        "large bodies",
        "CPU a GiB",
    ]);
    for Way { name, found, process, .. } in ways {
        let cpu = |values: &[f64]| match process {
            Processes::None => String::new(),
            _ => seconds(median(values)),
        };
        report.row(&[
            (*name).to_owned(),
            format!("{:.0}", median(&found.connections)),
            cpu(&found.connection_cpu),
            format!("{:.0}", median(&found.requests)),
            cpu(&found.request_cpu),
            seconds(median(&found.p50)),
            seconds(median(&found.p99)),
            format!("{:.2} GiB/s", median(&found.bytes) / GIB),
            cpu(&found.byte_cpu),
        ]);
    }
    report.line("");
    report.table(&["way", "memory before", "2,000 idle connections", "after they closed", "each"]);
    for Way { name, found, .. } in ways.iter().filter(|way| !way.found.idle.is_empty()) {
        report.row(&[
            (*name).to_owned(),
            megabytes(found.before),
            megabytes(found.during),
            megabytes(found.after),
            format!("{:.1} kB", median(&found.idle) / 1000.0),
        ]);
    }
    report.line("");
    let ours = &ways[0].found;
    let rates: [(&str, Values); 3] = [
        ("new connections a second ≥ 1.0 ×", |it| &it.connections),
        ("kept-alive requests a second ≥ 1.0 ×", |it| &it.requests),
        ("throughput of large bodies ≥ 1.0 ×", |it| &it.bytes),
    ];
    let costs: [(&str, Values); 2] = [
        ("p99 of kept-alive requests ≤ 1.0 ×", |it| &it.p99),
        ("processor time a GiB ≤ 1.0 ×", |it| &it.byte_cpu),
    ];
    let peers = || ways.iter().filter(|way| way.is_peer);
    let mut goal = |goal: &str, values: Values, is_rate: bool| {
        let order = |a: &&Way, b: &&Way| {
            let order = median(values(&a.found)).total_cmp(&median(values(&b.found)));
            if is_rate { order } else { order.reverse() }
        };
        let Some(best) = peers().max_by(order) else {
            return report.goal(goal, "neither haproxy nor nginx is installed", false);
        };
        let ratio = median(values(ours)) / median(values(&best.found));
        let is_met = if is_rate { ratio >= 1.0 } else { ratio <= 1.0 };
        report.goal(
            &format!("{goal} the better of haproxy and nginx"),
            &format!("{} × {}", ratio_text(ratio), best.name),
            is_met,
        );
    };
    for (text, values) in rates {
        goal(text, values, true);
    }
    for (text, values) in costs {
        goal(text, values, false);
    }
    let each = median(&ours.idle);
    report.goal("≤ 5 kB an idle connection", &format!("{:.1} kB", each / 1000.0), each <= 5000.0);
    let left = ours.after.saturating_sub(ours.before);
    report.goal(
        "memory of closed connections is given back: ≤ 1 MB left",
        &format!("{} more than before", megabytes(left)),
        left <= 1_000_000,
    );
}
