//! Clients that take nothing: their connections hold next to nothing in the kernels.

use std::net::SocketAddr;

use anyhow::Result;
use socket2::SockRef;
use tokio::net::{TcpSocket, TcpStream};

/// A connection on which the kernels take next to nothing that is not read: small segments keep the buffer of the
/// other side small too.
pub async fn narrow(addr: SocketAddr) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4_096)?;
    SockRef::from(&socket).set_tcp_mss(536)?;
    Ok(socket.connect(addr).await?)
}
