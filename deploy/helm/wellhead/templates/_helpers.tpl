{{/* The name of the application, for labels. */}}
{{- define "wellhead.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The name of objects: at most 52 characters, as suffixes follow. */}}
{{- define "wellhead.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* The labels by which Services and others find the pods. They cannot change in a Deployment that exists. */}}
{{- define "wellhead.selectorLabels" -}}
app.kubernetes.io/name: {{ include "wellhead.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "wellhead.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "wellhead.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "wellhead.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "wellhead.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "wellhead.image" -}}
{{- with .Values.image }}
{{- if .digest }}
{{- printf "%s@%s" .repository .digest }}
{{- else }}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The name of the Secret with `wellhead.yaml`. */}}
{{- define "wellhead.configSecret" -}}
{{- default (printf "%s-config" (include "wellhead.fullname" .)) .Values.existingConfigSecret }}
{{- end }}

{{/* Whether `workers` follows the requested CPU. */}}
{{- define "wellhead.workersByRequest" -}}
{{- if and (kindIs "invalid" .Values.workers) (.Values.resources.requests | default dict).cpu }}yes{{ end }}
{{- end }}

{{/* An address with a port, as wellhead writes it. */}}
{{- define "wellhead.address" -}}
{{- if contains ":" .host }}{{ printf "[%s]:%v" .host .port }}{{ else }}{{ printf "%s:%v" .host .port }}{{ end }}
{{- end }}

{{/*
A token list is never empty, since wellhead does not listen beyond the loopback without one. No token has the hash of
zeros, so this one lets nothing in.
*/}}
{{- define "wellhead.adminTokens" -}}
{{- if .Values.admin.tokens }}
{{- toYaml .Values.admin.tokens }}
{{- else -}}
- name: closed
  roles: [view]
  hash: {{ repeat 64 "0" | quote }}
{{- end }}
{{- end }}

{{/* The content of `wellhead.yaml`: `config`, and what the chart decides. */}}
{{- define "wellhead.config" -}}
{{- $config := deepCopy .Values.config }}
{{- if not (get $config "chains") }}
{{- fail "config.chains is empty: list the chains and their upstreams, or name a Secret with `existingConfigSecret`" }}
{{- end }}
{{- $instead := dict "listen" "listenAddress" "admin" "admin.port" "admin_access" "admin.tokens" "admin_hosts" "admin.hosts" "workers" "workers" "shared" "shared" }}
{{- range $key, $value := $instead }}
{{- if hasKey $config $key }}
{{- fail (printf "config.%s is written by the chart: use the value `%s`" $key $value) }}
{{- end }}
{{- end }}
{{- $timeouts := get $config "timeouts" | default dict }}
{{- range $key, $value := dict "shutdown_delay" "shutdown.delaySeconds" "drain" "shutdown.drainSeconds" }}
{{- if hasKey $timeouts $key }}
{{- fail (printf "config.timeouts.%s is written by the chart: use the value `%s`" $key $value) }}
{{- end }}
{{- end }}
{{- $_ := set $timeouts "shutdown_delay" (printf "%vs" .Values.shutdown.delaySeconds) }}
{{- $_ := set $timeouts "drain" (printf "%vs" .Values.shutdown.drainSeconds) }}
{{- $_ := set $config "timeouts" $timeouts }}
{{- $_ := set $config "listen" (include "wellhead.address" (dict "host" .Values.listenAddress "port" 4545)) }}
{{- $_ := set $config "admin" (include "wellhead.address" (dict "host" .Values.listenAddress "port" .Values.admin.port)) }}
{{- $_ := set $config "admin_access" (dict "tokens" (include "wellhead.adminTokens" . | fromYamlArray) "metrics_open" .Values.admin.metricsOpen) }}
{{- $service := printf "%s-admin" (include "wellhead.fullname" .) }}
{{- $names := list $service (printf "%s.%s" $service .Release.Namespace) (printf "%s.%s.svc" $service .Release.Namespace) }}
{{- $_ := set $config "admin_hosts" (concat $names .Values.admin.hosts) }}
{{- if include "wellhead.workersByRequest" . }}
{{- $_ := set $config "workers" "${WELLHEAD_WORKERS}" }}
{{- else if not (kindIs "invalid" .Values.workers) }}
{{- $_ := set $config "workers" .Values.workers }}
{{- end }}
{{- if .Values.shared.enabled }}
{{- $cluster := default (printf "%s-%s" .Release.Namespace (include "wellhead.fullname" .)) .Values.shared.cluster }}
{{- $_ := set $config "shared" (dict "redis" "${WELLHEAD_REDIS_URL}" "cluster" $cluster "when_away" .Values.shared.whenAway) }}
{{- end }}
{{- if .Values.tls.secretName }}
{{- $tls := get $config "tls" | default dict }}
{{- $_ := set $tls "certificate" "/etc/wellhead-tls/tls.crt" }}
{{- $_ := set $tls "key" "/etc/wellhead-tls/tls.key" }}
{{- $_ := set $config "tls" $tls }}
{{- end }}
{{- toYaml $config }}
{{- end }}
