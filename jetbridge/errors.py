"""The errors of Jetbridge: one base class, a message template and a stable code each.

Every error that a person can meet names the field, the value and the fix. ``http_status`` is what
an API caller sees when the error reaches one synchronously (docs/reference.md, Errors).
"""

from __future__ import annotations

from typing import Any, ClassVar


class JetbridgeError(Exception):
    """Base of all errors.

    Built from keyword arguments that fill ``template``, or from one ready message:
    ``PciInvalidAlias(reason="...")`` or ``JetbridgeError("text")``.
    """

    template: ClassVar[str] = "An unknown error occurred."
    http_status: ClassVar[int] = 500

    def __init__(self, message: str | None = None, **facts: Any) -> None:
        self.facts = facts
        self.message = self.template.format(**facts) if message is None else message
        super().__init__(self.message)

    @property
    def code(self) -> str:
        """Stable name of the kind of error, for scripts and messages between services."""
        return type(self).__name__


def in_words(error: Exception) -> str:
    """As people are told of it, whether it is one of ours or not."""
    return error.message if isinstance(error, JetbridgeError) else f"{type(error).__name__}: {error}"


class Invalid(JetbridgeError):
    """The caller's input is wrong."""

    template = "Bad request: {reason}"
    http_status = 400


class NotFound(JetbridgeError):
    template = "{noun} {key} could not be found."
    http_status = 404


class Unauthorized(JetbridgeError):
    """Who asks is not known: no credentials, or wrong ones."""

    template = "Authentication is required: {reason}"
    http_status = 401


class Forbidden(JetbridgeError):
    template = "Not authorized: {reason}"
    http_status = 403


class Conflict(JetbridgeError):
    template = "Conflict: {reason}"
    http_status = 409


class TooLarge(JetbridgeError):
    template = "{noun} is larger than the {limit} bytes allowed"
    http_status = 413


class NotSupported(Invalid):
    template = "Not supported: {reason}"


class ServiceUnavailable(JetbridgeError):
    template = "{reason}"
    http_status = 503


# --- configuration and devices ----------------------------------------------------------------


class InvalidConfiguration(Invalid):
    template = "Invalid configuration: {reason}"


class InvalidLibvirtMdevConfig(Invalid):
    """What the configuration says about vGPU types, or what a host has of them, can't be right."""

    template = "Invalid mediated device configuration: {reason}"


class PciConfigInvalidSpec(Invalid):
    template = "Invalid [pci]device_spec config: {reason}"


class PciDeviceWrongAddressFormat(JetbridgeError):
    template = "The PCI address {address} has an incorrect format."


class PciDeviceInvalidDeviceName(JetbridgeError):
    template = "Invalid [pci]device_spec config: devname and address exclude each other, both are given in {spec}"


class PciDeviceRemoteManagedNotPresent(JetbridgeError):
    template = "Invalid [pci]device_spec config: the remote-managed device {devname} is not present on this host"


class PciDeviceInvalidPFRemoteManaged(JetbridgeError):
    template = "Invalid [pci]device_spec config: PF {address} must not be remote-managed, only its VFs can be"


class PciDeviceNotFoundById(NotFound):
    template = "PCI device {id} not found"


class PciDeviceNotFound(NotFound):
    template = "PCI device {node_id}:{address} not found."


class PciDeviceInvalidStatus(Invalid):
    template = "PCI device {node_id}:{address} is {status} instead of {wanted}"


class PciDeviceVFInvalidStatus(Invalid):
    template = "Not all virtual functions of PF {node_id}:{address} are free."


class PciDevicePFInvalidStatus(Invalid):
    template = "Physical function {pf} of VF {node_id}:{address} is {status} instead of {wanted}"


class PciDeviceInvalidOwner(Invalid):
    template = "PCI device {node_id}:{address} is owned by {owner} instead of {wanted}"


class PciDeviceRequestFailed(JetbridgeError):
    template = "PCI device request {requests} failed"


class PciInvalidAlias(Invalid):
    template = "Invalid [pci]alias config: {reason}"


class PciRequestAliasNotDefined(Invalid):
    template = "PCI alias {alias} is not defined. {hint}"


class PciInvalidRequest(Invalid):
    """The value of ``pci_passthrough:alias`` in a flavor breaks its grammar."""

    template = "Invalid value {value!r} for extra spec pci_passthrough:alias: {reason}. Write NAME:COUNT, several separated by commas, for example GPU:1,NIC:2."


class ImagePCINUMAPolicyForbidden(Forbidden):
    template = "Image property hw_pci_numa_affinity_policy={image!r} may not override the flavor's hw:pci_numa_affinity_policy={flavor!r}"


class InvalidPCINUMAAffinity(Invalid):
    template = "Invalid PCI NUMA affinity policy {policy!r}: use required, legacy, preferred or socket"


class InvalidNumaRequest(Invalid):
    """A flavor or image asks for a guest topology that can't be built."""

    template = "Invalid {field}={value!r}: {reason}"


class ImageNumaForbidden(Forbidden):
    """An image property contradicts what the flavor fixes about the guest's CPUs or memory."""

    template = "Image property {image_field}={image!r} may not override the flavor's {flavor_field}={flavor!r}: {fix}"


class PciDeviceUnsupportedHypervisor(JetbridgeError):
    template = "{type} hypervisor does not support PCI devices"


class PciDeviceDetachFailed(JetbridgeError):
    template = "Failed to detach PCI device {device}: {reason}"


class DeviceIdentityMismatch(JetbridgeError):
    """The device at an address is not the one the server owns (F28)."""

    template = (
        "Server {server} owns {recorded} on host {host}, but that address now holds {found}: the server is not started"
    )


class PlacementPciException(Invalid):
    """The host's devices can't be shown in Placement as its options want it."""

    template = "Failed to report PCI devices to Placement: {error}"


class PlacementPciDependentDeviceException(PlacementPciException):
    template = (
        "Failed to report PCI devices to Placement: [pci]device_spec offers {device} beside {current}: a physical function and its"
        " virtual functions exclude each other, write a line for the one or the others"
    )


class PlacementPciMixedResourceClassException(PlacementPciException):
    template = (
        "Failed to report PCI devices to Placement: [pci]device_spec makes resource class {new_class} of {device}, but {current_class} of"
        " {current}: virtual functions of one physical function need the same resource_class"
    )


class PlacementPciMixedTraitsException(PlacementPciException):
    template = (
        "Failed to report PCI devices to Placement: [pci]device_spec gives traits {new_traits} to {device}, but {current_traits} to"
        " {current}: virtual functions of one physical function need the same traits"
    )


class ProviderNotOurs(Conflict):
    """Placement holds a provider of a name that we need, and somebody else made it."""

    template = (
        "Placement has a resource provider named {name} (UUID {uuid}) that this Jetbridge did not create: it is left alone, and host"
        " {host} is not reported. Give the host another name, or see whose it is and delete it (`openstack resource provider delete"
        " {uuid}`)"
    )


# --- scheduling, claims and builds ------------------------------------------------------------


class ComputeResourcesUnavailable(ServiceUnavailable):
    template = "Insufficient compute resources: {reason}."


class ClaimLost(ComputeResourcesUnavailable):
    """The host's state moved between scheduling and the claim: somebody else was faster."""


class NoValidHost(JetbridgeError):
    template = "No valid host was found. {reason}"


class MaxRetriesExceeded(NoValidHost):
    template = "No valid host was found. Exceeded max scheduling attempts {attempts} for server {server}. Last failure: {reason}"


class BuildAborted(JetbridgeError):
    template = "Build of server {server} aborted: {reason}"


class ServerNotFound(NotFound):
    template = "Server {server} could not be found."


class ServerInvalidState(Conflict):
    template = "Cannot '{action}' server {server} while it is in {attr} {state}"


class HostNotFound(NotFound):
    template = "Compute host {host} could not be found."


class HostInUse(Conflict):
    template = "Host {host} has servers ({servers}): delete them first (openstack server delete), then remove it."


# --- networks and ports -----------------------------------------------------------------------


class PortInUse(Conflict):
    template = "Port {port} is in use by server {server}: take it out there first (openstack server remove port), or use another port."


class PortBindingFailed(JetbridgeError):
    template = "Port {port} could not be bound on host {host}: {reason}"


class PortUpdateFailed(Invalid):
    template = "Port {port} could not be updated: {reason}"


class NetworkServiceFailed(ServiceUnavailable):
    """The Network service doesn't answer, or not as it should."""

    template = "The Network service at {url} failed: {reason}. See [neutron]"


class InterfaceAttachPciClaimFailed(Invalid):
    template = "Failed to claim PCI device for the port to be attached to server {server}: {reason}"


class InterfaceAttachFailed(JetbridgeError):
    template = "Failed to attach network interface to server {server}: {reason}"


class AttachInterfaceNotSupported(Invalid):
    template = "Attaching this network interface to server {server} is not supported: {reason}"


class InterfaceDetachFailed(Invalid):
    template = "Failed to detach network interface from server {server}: {reason}"


# --- accelerators -----------------------------------------------------------------------------


class DeviceProfileError(Invalid):
    """A flavor's or port's device profile can't be used."""

    template = "Device profile {name!r}: {reason}"


class AcceleratorRequestOpFailed(JetbridgeError):
    """Accelerator requests (ARQs) could not be created, read or deleted, or what was answered makes no sense."""

    template = "Failed to {op} accelerator requests: {reason}"


class AcceleratorRequestBindingFailed(JetbridgeError):
    """``arqs`` in the facts: the UUIDs of the requests that were to be bound."""

    template = "Failed to bind accelerator requests {arqs}: {reason}"


class ForbiddenWithAccelerators(NotSupported):
    template = "{action} is not supported for server {server}, which has accelerators of device profile {profile!r}"


class ForbiddenPortsWithAccelerator(NotSupported):
    template = "{action} is not supported for server {server} and port {port}, whose device is an accelerator's: {fix}"


# --- hypervisor -------------------------------------------------------------------------------


class HypervisorError(JetbridgeError):
    """The hypervisor refused or failed a call; the message is the hypervisor's own."""

    template = "{operation} failed on {host}: {reason}"


class HypervisorUnavailable(HypervisorError):
    template = "The hypervisor at {uri} does not answer: {reason}"


class DomainNotFound(HypervisorError):
    template = "Domain {name} does not exist on {host}"


class GuestXmlInvalid(JetbridgeError):
    """A domain's XML does not hold what Jetbridge has to find in it."""

    template = "Guest XML: {path} {reason}"


class ProbeFailed(HypervisorError):
    """Discovery failed or was partial: nothing may be concluded from it."""

    template = "Device discovery on {host} failed: {reason}"


class InvalidNodeDevice(ProbeFailed):
    """A node-device document breaks libvirt's format."""

    template = "Node device document {name}: {reason}"


# --- fleet and messages -----------------------------------------------------------------------


class InvalidFleet(Invalid):
    template = "Fleet file {path}: {reason}"


class MessageTimeout(ServiceUnavailable):
    template = "No answer from {topic} to {method} within {seconds} s"


class UnknownDestination(ServiceUnavailable):
    template = "Nobody serves {topic}: its service is stopped or gone, `openstack compute service list` shows which run"


# --- Placement --------------------------------------------------------------------------------


class PlacementUnavailable(ServiceUnavailable):
    """No answer, or none that tells anything: whether a change was made shows when it is back."""

    template = "Placement at {url} doesn't answer: {reason}"


class PlacementConflict(Conflict):
    """There is no room, or the provider has no such inventory: Placement's own words."""

    template = "Placement has no room: {reason}"


class PlacementConsumerConflict(PlacementConflict):
    """Somebody else wrote the consumer's allocations since they were read."""

    template = "Placement: the allocations of {consumer} were changed meanwhile: {reason}"


class PlacementGenerationConflict(Conflict):
    """Somebody else changed the provider since it was read: read it again."""

    template = "Placement: provider {provider} was changed meanwhile: {reason}"


class PlacementInventoryInUse(Conflict):
    """What is to be taken away is allocated."""

    template = "Placement: {reason}"


class PlacementUnknownName(Invalid):
    """A resource class or trait that Placement has never heard of, so that no provider has it."""

    template = "Placement knows no {names}"


class PlacementRefused(JetbridgeError):
    """A request that Placement doesn't take: its own words."""

    template = "Placement refused {request}: {reason}"


# --- database ---------------------------------------------------------------------------------


class DatabaseUnusable(JetbridgeError):
    """The database isn't ours, is of another version, or can't be opened."""

    template = "Database {url}: {reason}"


class DatabaseAway(ServiceUnavailable):
    """The database server has not answered for long. Whether the last change was made shows when it is back."""

    template = "Database {url} has not answered for {seconds} s: {reason}. See that it runs; ask again then"


class DatabaseOutOfOrder(ServiceUnavailable):
    """The database takes no change now: its disk is full or broken, or another program holds it. Nothing was changed."""

    template = (
        "Database {url} can't be written: {reason}. See that its disk has room and that no other program holds it; ask"
        " again then"
    )


class InvalidQuery(Invalid):
    """A query given to ``jetbridge sql`` can't be run; the message is the database's own, or the rule it breaks."""

    template = "Query refused: {reason}"
