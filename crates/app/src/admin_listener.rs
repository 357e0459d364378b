//! The admin listener: where it is, who may use it, and its TLS.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use tokio::task::{self, JoinHandle};
use wellhead_access::Pepper;
use wellhead_server::{
    AdminAccess, AdminCertificate, AdminToken, Drained, Hosts, Listener, LocalListener, Server,
    Shutdown, SocketFileLease, Tls,
};

use crate::admin::AdminPages;
use crate::assemble::AssembleError;
use crate::config::{Admin, ListenerName, Settings};
use crate::serve_error::ServeError;
use crate::systemd::GivenAdmin;

/// The admin listener, bound and not yet served.
pub(crate) struct AdminListener {
    door: AdminDoor,
    hosts: Hosts,
    tls: Option<Arc<Tls>>,
}

enum AdminDoor {
    Address(Listener),
    File(LocalListener),
}

impl AdminListener {
    /// Binds it, unless its socket was given; `None` where the settings have none. `is_handed_over`: by a process
    /// that ends.
    pub(crate) fn bind(
        settings: &Settings,
        given: Option<GivenAdmin>,
        is_handed_over: bool,
    ) -> Result<Option<Self>, ServeError> {
        let unusable =
            |error| ServeError::System("the socket `admin` that was given cannot be used", error);
        let door = match (&settings.admin, given) {
            (Admin::Off, _) => return Ok(None),
            (_, Some(GivenAdmin::Tcp(socket))) => {
                AdminDoor::Address(Listener::given(socket).map_err(unusable)?)
            }
            (Admin::Unix(path), Some(GivenAdmin::Unix(socket))) => {
                let take =
                    if is_handed_over { LocalListener::taken_over } else { LocalListener::given };
                AdminDoor::File(take(socket, path).map_err(unusable)?)
            }
            (Admin::At(address), _) => {
                let bind = |error| ServeError::Bind("admin", *address, error);
                AdminDoor::Address(Listener::bind(*address, false).map_err(bind)?)
            }
            (Admin::Unix(path), None) => {
                let mode = settings.admin_access.socket_mode.0;
                let bind = |error| ServeError::BindFile(path.clone(), error);
                AdminDoor::File(LocalListener::bind(path, mode).map_err(bind)?)
            }
        };
        let tls = settings.admin_access.tls.as_ref().map(|tls| Tls::load(tls.files())).transpose();
        let tls = tls.map_err(AssembleError::Tls)?;
        Ok(Some(Self { door, hosts: hosts(&settings.admin_hosts), tls }))
    }

    /// Where it is, with the port that it was given.
    pub(crate) fn place(&self) -> Admin {
        match &self.door {
            AdminDoor::Address(listener) => Admin::At(listener.address()),
            AdminDoor::File(listener) => Admin::Unix(Path::to_owned(listener.path())),
        }
    }

    /// A copy of its socket, and the right to its file.
    pub(crate) fn copy(&self) -> io::Result<(OwnedFd, SocketFileLease)> {
        match &self.door {
            AdminDoor::Address(listener) => Ok((listener.copy()?, SocketFileLease::default())),
            AdminDoor::File(listener) => Ok((listener.copy()?, listener.file_lease())),
        }
    }

    /// Its certificate, which has to be renewed.
    pub(crate) fn tls(&self) -> Option<&Arc<Tls>> {
        self.tls.as_ref()
    }

    /// Serves the pages, until the shutdown that is returned begins.
    pub(crate) fn serve(
        self,
        pages: Arc<AdminPages>,
    ) -> (Shutdown, JoinHandle<io::Result<Drained>>) {
        let settings =
            wellhead_server::Settings { hosts: self.hosts, ..wellhead_server::Settings::admin() };
        let (server, shutdown) = (Server::with(settings, self.tls), Shutdown::new());
        let begun = shutdown.clone();
        let door = self.door;
        let serve = async move {
            match door {
                AdminDoor::Address(listener) => server.serve_admin(listener, pages, &begun).await,
                AdminDoor::File(listener) => {
                    server.serve_admin_locally(listener, pages, &begun).await
                }
            }
        };
        (shutdown, task::spawn(serve))
    }
}

/// Who may use it. Hashes of tokens are made with the well-known pepper: the tokens are random.
pub(crate) fn admin_access(settings: &Settings) -> AdminAccess {
    let guard = &settings.admin_access;
    let tokens = guard.tokens.iter().map(|token| AdminToken {
        name: token.name.0.as_str().into(),
        roles: token.roles.iter().copied().collect(),
        hash: token.hash,
    });
    let certificates = guard.certificates.iter().map(|certificate| AdminCertificate {
        name: certificate.name.clone(),
        roles: certificate.roles.iter().copied().collect(),
    });
    let is_local = match &settings.admin {
        Admin::At(address) => address.ip().is_loopback(),
        Admin::Unix(_) | Admin::Off => true,
    };
    AdminAccess {
        pepper: Pepper::well_known(),
        tokens: tokens.collect(),
        certificates: certificates.collect(),
        metrics_open: guard.metrics_open.unwrap_or(is_local),
    }
}

/// The names that a listener answers to.
pub(crate) fn hosts(listed: &[ListenerName]) -> Hosts {
    match listed.iter().any(|name| name == "*") {
        true => Hosts::Any,
        false => Hosts::Listed(listed.iter().map(|name| name.as_ref().to_owned()).collect()),
    }
}
