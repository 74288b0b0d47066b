{{- define "sandlot.name" -}}
{{- if contains "sandlot" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-sandlot" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{- define "sandlot.labels" -}}
app.kubernetes.io/name: sandlot
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "sandlot.selector" -}}
app.kubernetes.io/name: sandlot
app.kubernetes.io/instance: {{ .root.Release.Name }}
sandlot.dev/role: {{ .role }}
{{- end }}

{{- define "sandlot.image" -}}
{{- if .root.Values.images.registry }}{{ trimSuffix "/" .root.Values.images.registry }}/{{ .image | splitList "/" | last }}{{ else }}{{ .image }}{{ end -}}
{{- end }}

{{- define "sandlot.claim" -}}
{{- default (printf "%s-workspaces" (include "sandlot.name" .)) .Values.workspaces.existingClaim -}}
{{- end }}

{{- define "sandlot.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}

{{- define "sandlot.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "sandlot.pullSecrets" -}}
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{/* The configuration that gateways and egress proxies share: blueprints and their hashes have to be equal. */}}
{{- define "sandlot.config" -}}
{{- $workspaces := dict "mode" .Values.workspaces.mode -}}
{{- if eq .Values.workspaces.mode "claim" }}{{ $_ := set $workspaces "claim" (include "sandlot.claim" .) }}{{ $_ := set $workspaces "root" "/var/lib/sandlot-workspaces" }}{{ end -}}
{{- if eq .Values.workspaces.mode "per-thread" }}{{ $_ := set $workspaces "sizeBytes" .Values.workspaces.size }}{{ with .Values.workspaces.storageClass }}{{ $_ := set $workspaces "storageClass" . }}{{ end }}{{ end -}}
{{- $kubernetes := dict "connect" "pod-ip" "image" (include "sandlot.image" (dict "root" . "image" .Values.images.sandbox)) "imagePullPolicy" .Values.images.pullPolicy "networkPolicy" .Values.networkPolicy.mode "clusterRanges" .Values.networkPolicy.clusterRanges "workspaces" $workspaces -}}
{{- if .Values.egress.enabled }}{{ $_ := set $kubernetes "egress" (dict "host" "@EGRESS_HOST@" "port" .Values.egress.port "canaryPort" .Values.egress.canaryPort) }}{{ end -}}
{{- $store := dict "type" .Values.store.type -}}
{{- with .Values.store.url }}{{ $_ := set $store "url" . }}{{ end -}}
{{- if .Values.store.passwordSecret.name }}{{ $_ := set $store "passwordFile" "/etc/sandlot-store/password" }}{{ end -}}
{{- $gateway := dict "host" "0.0.0.0" "port" .Values.gateway.port "behindProxy" true "allowedHosts" (concat (list (include "sandlot.name" .) (printf "%s.%s" (include "sandlot.name" .) .Release.Namespace) (printf "%s.%s.svc" (include "sandlot.name" .) .Release.Namespace) "localhost" "127.0.0.1") .Values.gateway.allowedHosts) -}}
{{- $own := dict "backend" "kubernetes" "fleetId" .Values.fleetId "kubernetes" (mergeOverwrite $kubernetes (deepCopy .Values.kubernetes)) "store" $store "gateway" $gateway -}}
{{- mergeOverwrite (deepCopy .Values.config) $own | toYaml -}}
{{- end }}
